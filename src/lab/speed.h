// How fast a model reads prompts and writes tokens, without tokenizer and sampling: forward passes as the executor runs
// them, on random tokens.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/profile.h"
#include "lab/roofline.h"
#include "lab/stopwatch.h"
#include "models/model.h"

namespace sluice::lab {

struct SpeedOptions {
  std::vector<int> prompts{512};                       // lengths of prompts to read
  std::vector<int> answers{128};                       // lengths of answers to write
  std::vector<int> batches{1, 2, 3, 4, 6, 8, 16, 32};  // sequences that write at once
  std::vector<int> depths{0, 4096};                    // positions that are known before
  int repeat = 3;
  int step_tokens = 512;  // of one forward pass over a prompt
  int block_size = 16;
  DType kv_type = DType::F16;
  uint64_t seed = 1;
  TimeSource time = TimeSource::Wall;
  ProfiledBackend* profiled =
      nullptr;  // not null: the model's back-end, whose costs become part of the results
};

struct SpeedTest {
  enum class Kind : uint8_t { Prompt, Answer };
  Kind kind = Kind::Prompt;
  int tokens = 0;  // of one sequence
  int batch = 1;
  int depth = 0;

  std::string name() const;  // "pp512", "tg128 x8 @ d4096"
  int64_t all_tokens() const { return int64_t{tokens} * batch; }
};

struct SpeedResult {
  SpeedTest test;
  std::vector<double> seconds;            // of each repetition, sorted
  std::optional<Floor> floor;             // of one repetition
  std::vector<OperationCost> operations;  // of the last repetition, where they are profiled

  double median() const;
  double rate(double time) const {
    return static_cast<double>(test.all_tokens()) / time;
  }  // tokens per second
  // Half of the way from the fastest to the slowest, over the median.
  double spread() const { return (seconds.back() - seconds.front()) / 2 / median(); }
};

// Every prompt and answer at every depth, answers for every batch. `limits` absent: no floors. `done` sees each result
// as it comes. Errors name the option that asks for too much.
Result<std::vector<SpeedResult>> measure_speed(const models::Model& model, const SpeedOptions& options,
                                               const std::optional<Limits>& limits,
                                               const std::function<void(const SpeedResult&)>& done);

}  // namespace sluice::lab
