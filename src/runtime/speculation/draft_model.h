// A smaller model that guesses the tokens behind the sequences of a step, one after the other for all of them in a batch.
// Its KV lies in memory of its own, in blocks of the same numbers as the target's: tables, moves and cached prefixes are
// those of the step. Of the target's groups it has those of positions, which come first: a model that keeps states guesses
// for none. What it lacks of a sequence costs right guesses, nothing else.
//
// A head (models/heads) runs in its place where there is one. Position i of a head holds token i + 1, beside what the target
// made of position i in an earlier step: keep() hands that over.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "models/heads/head.h"
#include "request/speculation.h"
#include "request/step.h"
#include "runtime/overlapped_step_runner.h"
#include "runtime/sequences/sequence.h"
#include "runtime/step_runner.h"

namespace sluice::runtime {

using request::Speculation;

class DraftModel {
 public:
  // What keeps a model from drafting for another; their tokens are taken to be the same.
  static Status check(const models::ModelSpec& draft, const models::ModelSpec& target);
  // `vocab`: width of the target's rows; `head`: what the runner's model is of, outlives it; null: a model of its own.
  DraftModel(std::unique_ptr<StepRunner> runner, int vocab, const models::Head* head);

  StepRunner& runner() { return *runner_; }
  const models::Model& model() const { return runner_->runner().model(); }
  bool is_head() const { return inputs_.has_value(); }
  Speculation kind() const;
  // Whether it guesses from the hidden states of all positions, behind the target's last layer.
  bool reads_hidden() const { return kind() == Speculation::Mtp; }
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
    int passes =
        0;  // 0: they tell nothing of others, as those that caught up with a prompt or recorded a graph
    double seconds = 0;
  };
  // Runs prompts as the target will, so that later guesses find their KV, and fills in the drafts. REQUIRES: no step is
  // awaited where drafts are asked for.
  Cost run(const request::Step& step, std::span<const Item> items);
  // On an asynchronous device, where the target runs next: the same without waiting. Drafts become ~slot, the places that
  // the device samples them into; take() gives their values once it has. REQUIRES: !is_head(), no step is awaited where
  // drafts are asked for.
  void submit(const request::Step& step, std::span<const Item> items, OverlappedStepRunner& ahead);
  Cost take(OverlappedStepRunner& ahead);
  // The target has just run the work, from this row on: its hidden states are what a head guesses from. REQUIRES: is_head()
  void keep(const request::Work& work, int first_row, ModelRunner& target);

 private:
  struct Live {
    const Item* item = nullptr;
    size_t wanted = 0;            // drafts
    int row = 0;                  // of the last token that ran
    std::vector<float> hidden{};  // behind it, of a head
  };
  // What the target made that a head has not run yet.
  struct Kept {
    int begin = 0;            // position of the first
    std::vector<float> rows;  // [positions, dim]
  };
  // The passes of submit() whose tokens take() takes.
  struct Sent {
    std::vector<request::Work*> works;  // by the rows that were sampled
    int64_t ticket = 0;
    size_t draft = 0;  // which of the works' drafts
  };
  void pad_pass(size_t sampled);
  void send_pass(const std::vector<Live>& live, size_t draft, OverlappedStepRunner& ahead);
  void take_sent(size_t left, OverlappedStepRunner& ahead);
  int draft_slot(size_t index, OverlappedStepRunner& ahead);
  bool add(const request::Step& step, const Item& item);
  bool add_kept(const request::Step& step, const Item& item, int& computed);
  void add_tokens(const request::Step& step, size_t index, int begin, std::span<const Token> tokens);
  void take_guesses(std::vector<Live>& live);
  std::span<const float> last_hidden(size_t index) const;
  void embed_fused();
  void run_on(const request::Step& step, std::vector<Live>& live);
  bool has_group(int group) const { return group < static_cast<int>(windows_.size()); }
  int first_with_blocks(const request::Step& step, size_t index) const;
  std::span<float> row(size_t index);

  std::unique_ptr<StepRunner> runner_;
  std::optional<models::HeadInputs> inputs_;  // of a head
  std::vector<int> windows_;                  // per group of block tables
  int vocab_;
  std::unordered_map<SeqId, int> computed_;  // positions whose KV is there
  std::unordered_map<SeqId, Kept> kept_;
  std::vector<float> hidden_;  // [rows of the batch, dim], of a head
  sampling::Workspace workspace_;
  ModelRunner::Rows rows_;
  std::vector<int32_t> wanted_;
  std::deque<Sent> sent_;
  std::vector<TokenSlots::Slot> slots_;  // for drafts
  OverlappedStepRunner::SampleBatch to_sample_;
  TimePoint submitted_{};
  RecordedShapes recorded_;
  int passes_ = 0;  // since then; 0: they say nothing of what a pass takes
  std::vector<float> row_;
  std::vector<std::span<const BlockId>> tables_;
  std::vector<request::BlockMove> moves_;  // of the groups that it has
};

}  // namespace sluice::runtime
