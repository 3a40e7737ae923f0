// A tiny model behind the real executor and engine, stepped by the test itself.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/ref/ref_backend.h"
#include "runtime/model_executor.h"

namespace sluice::runtime::test {

inline const std::string kData = SLUICE_TEST_DATA;

// The reference back-end with a token that poisons its row, and a step that fails when it is told to.
class FaultyBackend : public kernels::RefBackend {
 public:
  void embed(TensorView out, const kernels::Weight& table, std::span<const int32_t> ids) override {
    if (fail_next) {
      fail_next = false;
      throw std::runtime_error("the device fell off the bus");
    }
    RefBackend::embed(out, table, ids);
    embedded += static_cast<int64_t>(ids.size());
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == poison) *out.at<float>(static_cast<int64_t>(i)) = std::numeric_limits<float>::quiet_NaN();
  }

  Token poison = -1;
  bool fail_next = false;
  int64_t embedded = 0;  // tokens run so far
};

struct RigOptions {
  std::string model = "expert";
  std::string amateur;  // empty: none
  sched::SchedulerOptions scheduler{.max_seqs = 16, .max_context = 256};
  std::array<int, cache::kTiers> blocks{256, 0, 0};  // of every group
  int block_size = 4;
  DType kv_type = DType::F32;
  bool prefix_cache = true;
  std::vector<Token> end_tokens;
  std::string disk_folder = "/var/tmp";
};

struct Answer {
  std::vector<std::vector<sched::Sampled>> choices;
  std::vector<double> scores;
  std::vector<sched::Sampled> prompt_logprobs;
  std::vector<std::vector<float>> vectors;
  std::vector<engine::Finished> ends;  // one, if all is well

  std::vector<Token> tokens(size_t choice = 0) const;
  const std::optional<Error>& error() const { return ends.at(0).error; }
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {});

  // Index of the answer.
  size_t submit(sched::Request request);
  // Until nothing is left to do. The ledger's invariants are checked after every step.
  void finish();
  bool step();
  // One request on its own.
  Answer run(sched::Request request);
  const Answer& answer(size_t index) const { return *answers_[index]; }

  std::shared_ptr<FaultyBackend> backend = std::make_shared<FaultyBackend>();
  std::unique_ptr<models::Model> model, amateur;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<engine::Engine> engine;

 private:
  std::vector<std::shared_ptr<Answer>> answers_;
};

sched::Request greedy_request(std::vector<Token> prompt, int max_tokens);
// Tokens that look random but are the same everywhere; none is below 3 or over 90.
std::vector<Token> words(size_t count, uint32_t seed);

}  // namespace sluice::runtime::test
