// One step, from its works to the rows that come back: plans it over the sequences, runs the models, and delivers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/memory/picture_embeddings.h"
#include "runtime/overlapped_step_runner.h"
#include "runtime/row_delivery.h"
#include "runtime/sequence_table.h"
#include "runtime/speculation/draft_model.h"
#include "runtime/step_runner.h"

namespace sluice::runtime {

// A submitted step.
struct SubmittedStep {
  std::vector<request::Outcome> outcomes;  // those known so far
  AwaitedRows awaited;
  std::optional<int64_t> ticket;  // of what is awaited
  TimePoint start{};              // of the submission
  double draft_seconds = 0;       // that the draft model took of the step
  int rows = 0, sampled = 0;      // rows that it runs, without padding, and how many of them are sampled from
  int sequences = 0;              // that sample
  bool counts = true;             // what it takes says what such a step takes
};

// The amateur of contrastive decoding, where there is one, runs the work of requests for contrastive decoding alone.
//
// On an asynchronous device a step's tokens are sampled there, and the next step may be submitted before this one is
// collected. Where tokens are masked (grammars, allowed tokens), the forward pass is submitted first; while the device runs
// it, the tokens of the step before are taken and the masks filled, and the sampling follows. Rows that a sequence needs on
// the host (bad words of several tokens, typical-p, searches, two models, vectors) are sent beside the step and used when
// it is collected. Only log-probabilities of a prompt, and more rows than are kept for that, make the submission wait for
// its own step; so does attention to a prompt.
//
// Where ranks are stages of the model, a submission runs the first one's layers and asks for the rows, which the last one
// sends; they are used when the step is collected. What waits above waits there, too, and so do steps of two models.
class StepPipeline {
 public:
  struct Options {
    std::vector<Token> eos_tokens;
    std::shared_ptr<grammar::GrammarStore> grammars;
    SpeculationOptions speculation;
    std::unique_ptr<StepRunner> draft = nullptr;  // of the draft model or head, where there is one
    const models::Head* head = nullptr;           // outlives the pipeline; null: it is a model of its own
    size_t picture_bytes = 0;                     // most bytes of kept embeddings of pictures
  };
  // `contrast` may be null.
  StepPipeline(std::unique_ptr<StepRunner> target, std::unique_ptr<StepRunner> contrast, Options options);

  int depth() const { return ahead_ ? RowDelivery::kSteps : stages(); }
  // Parts of the device that each have a step at the same time; then steps that are submitted together have different
  // sequences, or the second waits for the first.
  int stages() const { return target_->runner().steps_in_flight(); }
  StepRunner& target() { return *target_; }
  StepRunner* contrast() { return contrast_.get(); }
  DraftModel* draft() { return draft_ ? &*draft_ : nullptr; }
  OverlappedStepRunner* ahead() { return ahead_ ? &*ahead_ : nullptr; }

  // `earlier`: the submitted steps that are not collected; works of this one may count on a token of theirs.
  template <class Steps>
  void run(const request::Step& step, Steps& earlier, SubmittedStep& submitted) {
    start(step);
    const auto settle = [&] {
      for (auto& other : earlier) synchronize(other);
    };
    if (waits_for_host()) settle();
    finish(step, submitted, settle);
  }
  // Of the step submitted last, before the device had something to do.
  double launch_seconds() const;
  const PictureCounts& picture_counts() const { return pictures_.counts(); }
  // Works whose pictures are not finished in the step's share are postponed, which neither another rank nor a draft model nor
  // a step that is submitted already may have counted on.
  bool parts_towers() const { return !ahead_ && !draft_ && !contrast_ && !target_->runner().model().group; }
  double tower_seconds() const { return parts_towers() ? pictures_.tower_seconds() : 0; }
  // Takes what the device sends of a step; waits for it.
  void synchronize(SubmittedStep& submitted);
  // Forgets all sequences and what is known of lost blocks.
  void clear();

 private:
  void start(const request::Step& step);
  bool waits_for_host() const;
  // `settle` takes what earlier steps give.
  void finish(const request::Step& step, SubmittedStep& submitted, const std::function<void()>& settle);
  void fill_drafts(const request::Step& step, SubmittedStep& submitted, const std::function<void()>& settle);
  void encode_pictures(const request::Step& step);
  bool plan_work(const request::Step& step, size_t index, PlannedWork& item, SubmittedStep& submitted);
  void run_on_host(SubmittedStep& submitted);
  // parallel/rank_steps.cpp
  bool pad_decode();
  void run_in_stages(SubmittedStep& submitted, const std::function<void()>& settle);
  void take_from_last_stage(SubmittedStep& submitted);
  // Since the step before was there, as long as there was something to do.
  double seconds_of(const SubmittedStep& submitted);
  void run_ahead(bool repeats, SubmittedStep& submitted, const std::function<void()>& settle);
  ModelRunner::Outputs run_then_sample(bool repeats, SubmittedStep& submitted,
                                       const std::function<void()>& settle);
  void fill_mask(PlannedWork& item);
  void take_device_drafts(SubmittedStep& submitted);
  void pad_to_recorded(bool single);
  std::span<const int32_t> wanted_rows();
  void run_contrast();
  void keep_hidden();
  // Before the forward pass: which queries it keeps. Behind it: those, and what comes of them, to their sequences.
  void ask_for_queries();
  void read_attention();
  void note_size(SubmittedStep& submitted) const;
  void note_cost(const SubmittedStep& step, double seconds);
  void note_drafts(const DraftModel::Cost& cost, SubmittedStep& submitted);

  std::unique_ptr<StepRunner> target_, contrast_;
  std::optional<OverlappedStepRunner> ahead_;
  std::optional<DraftModel> draft_;
  Speculator speculator_;
  SequenceTable sequences_;  // hold slots of ahead_, and drafters of the speculator
  RowDelivery delivery_;
  RecordedShapes recorded_;  // of steps with drafts
  PictureEmbeddings pictures_;
  bool contrasted_ = false;   // a request for contrastive decoding has come: the amateur's KV is of worth
  TimePoint synchronized_{};  // when the device's last step was there
  TimePoint started_{};       // when the last submission began

  // Of the step that is being submitted.
  const request::Step* step_ = nullptr;
  std::vector<PlannedWork> plan_;
  std::vector<request::Work> filled_;  // works whose drafts the draft model finds
  OverlappedStepRunner::SampleBatch to_sample_;
  std::vector<int32_t> rows_;
};

}  // namespace sluice::runtime
