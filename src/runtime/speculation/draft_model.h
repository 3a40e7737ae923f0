// A smaller model that guesses the tokens behind the sequences of a step, one after the other for all of them in a batch.
// Its KV lies in memory of its own, in blocks of the same numbers as the target's: tables, moves and cached prefixes are
// those of the step. What it lacks of a sequence costs right guesses, nothing else.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "request/step.h"
#include "runtime/sequences/sequence.h"
#include "runtime/step_runner.h"

namespace sluice::runtime {

class DraftModel {
 public:
  // What keeps a model from drafting for another; their tokens are taken to be the same.
  static Status check(const models::ModelSpec& draft, const models::ModelSpec& target);
  // `vocab`: width of the target's rows.
  DraftModel(std::unique_ptr<StepRunner> runner, int vocab)
      : runner_(std::move(runner)), windows_(kv_groups(runner_->spec()).windows), vocab_(vocab) {}

  const models::Model& model() const { return runner_->runner().model(); }
  // What a step says of sequences and blocks, before its work.
  void apply(const request::Step& step);
  void clear();

  // A work of the step, by its index.
  struct Item {
    size_t index = 0;
    Sequence* sequence = nullptr;
    size_t lane = 0;
    request::Work* work = nullptr;  // a copy whose drafts are to be filled in; null: none are asked for
  };
  struct Cost {
    int passes = 0;  // 0: nothing was measured
    double seconds = 0;
  };
  // Runs prompts as the target will, so that later guesses find their KV, and fills in the drafts.
  Cost run(const request::Step& step, std::span<const Item> items);

 private:
  struct Live {
    const Item* item = nullptr;
    size_t wanted = 0;  // drafts
    int row = 0;        // of the last token that ran
  };
  bool add(const request::Step& step, const Item& item);
  void add_tokens(const request::Step& step, size_t index, int begin, std::span<const Token> tokens);
  void take_guesses(std::vector<Live>& live);
  int first_with_blocks(const request::Step& step, size_t index) const;
  std::span<float> row(size_t index);

  std::unique_ptr<StepRunner> runner_;
  std::vector<int> windows_;  // per group of block tables
  int vocab_;
  std::unordered_map<SeqId, int> computed_;  // positions whose KV is there
  sampling::Workspace workspace_;
  ModelRunner::Rows rows_;
  std::vector<int32_t> wanted_;
  std::vector<float> row_;
  std::vector<std::span<const BlockId>> tables_;
};

}  // namespace sluice::runtime
