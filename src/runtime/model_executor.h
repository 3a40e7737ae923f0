// Runs the engine's steps on a model.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "runtime/device_logit_processor.h"
#include "runtime/model_runner.h"
#include "runtime/overlapped_step_runner.h"
#include "runtime/sequences/embedding_pooler.h"
#include "runtime/sequences/search.h"
#include "runtime/warm_up.h"
#include "sched/executor.h"

namespace sluice::runtime {

struct ExecutorOptions {
  KvMemoryOptions memory;  // blocks as the KV manager's groups have them on the device tier
  TierOptions tiers;
  std::vector<Token> eos_tokens;  // end a sequence unless its request ignores them
  bool padding = false;           // steps may ask for padded rows
  // Steps of up to this size are run before the first request comes, where the device works beside the host; 0: none.
  StepSize warm_up;
};

// The model, and the amateur of contrastive decoding where there is one (same vocabulary), outlive the
// executor.
//
// Where the model's device works beside the host, a step's tokens are sampled there, and the next step may be submitted
// before this one is collected. Requests that only the host can sample for (allowed tokens, bad words of several tokens,
// typical-p, searches, two models, log-probabilities of the prompt) make their step wait for the steps before it.
class ModelExecutor : public sched::Executor {
 public:
  static Result<std::unique_ptr<ModelExecutor>> make(const models::Model& model, const models::Model* amateur,
                                                     const ExecutorOptions& options);

  int depth() const override { return ahead_ ? 2 : 1; }
  void submit(const request::Step& step) override;
  Result<std::vector<request::Outcome>> collect() override;
  Status reset() override;

 private:
  // A sequence that samples its own tokens.
  struct SampledSequence {
    std::vector<Token> tokens;
    sampling::TokenSampler sampler;
    std::shared_ptr<const request::Request> request;
    DeviceLogitProcessor edits;   // of the tokens that the device samples
    int slot = 0;                 // where the device samples its tokens; 0: the host does
    int pending = 0;              // tokens that submitted steps will add
    std::optional<Error> failed;  // of a sample: the answer to all later work of the sequence
    bool lost = false;            // its last work

    int length() const { return static_cast<int>(tokens.size()) + pending; }
    void take(Token token) {
      tokens.push_back(token);
      sampler.accept(token);
      edits.accept(token);
    }
  };
  // A sequence that gives a vector.
  struct PooledSequence {
    EmbeddingPooler pool;
    std::shared_ptr<const request::Request> request;
  };
  struct Group {
    std::unique_ptr<Search> search;
    std::shared_ptr<const request::Request> request;
    std::vector<SeqId> lanes;  // by lane of the search
  };
  // Rows of the step whose hidden states or logits somebody wants.
  struct OutputRows {
    request::Work work;
    SeqId owner;    // the sequence, or its group
    int first_row;  // row of position work.begin
  };

  // A submitted step. Its outcomes are those of the host, and, once settled, those of what the device drew.
  struct Submitted {
    std::vector<request::Outcome> outcomes;
    std::optional<Error> failure;
    std::vector<SeqId> to_sample;   // in the order of the device's list
    std::optional<int64_t> ticket;  // not settled yet
  };

  ModelExecutor(const models::Model& model, const ExecutorOptions& options)
      : model_(model), options_(options) {}

  Status set_up(const models::Model* amateur);
  // Looks, now and then, whether the files that weights lie in were written to: what is computed from then on is worth
  // nothing.
  Status check_files();
  void run(const request::Step& step, Submitted& submitted);
  bool needs_host_sampling(const request::Work& work) const;
  bool samples(const request::Work& work, const SampledSequence& solo) const;
  // Takes what the device drew in a step; waits for it.
  void synchronize(Submitted& submitted);
  void synchronize_all();
  OverlappedStepRunner::SampleBatch plan_samples(std::span<const OutputRows> wanted, Submitted& submitted);
  void add_idle_rows(Batch& batch, OverlappedStepRunner::SampleBatch& to_sample);

  void admit(const request::Admission& admission);
  void fork(const request::Fork& fork);
  void admit_or_starve(const request::Admission& admission);
  void fork_or_starve(const request::Fork& entry);
  void retire(SeqId seq);
  void name_lanes(const request::Lanes& lanes);
  std::span<const Token> tokens_of(SeqId seq) const;
  bool add_work(Batch& batch, const request::Step& step, size_t index);
  bool touches_lost_block(BlockMover& mover, const request::Step& step, size_t index) const;
  void add_padding(Batch& batch, int64_t tokens);
  void run_padding(int64_t tokens);

  // A row to sample from, of the model and of the amateur where there is one.
  struct LogitsRow {
    std::span<float> model;
    std::span<const float> amateur;
  };
  // Rows whose hidden states or logits finish() may read; ascending.
  std::vector<int32_t> read_rows(std::span<const OutputRows> wanted) const;
  void finish(std::vector<OutputRows>& wanted);
  void finish_all_sampled(std::span<const OutputRows> wanted);
  void take_rows(const OutputRows& wanted, SampledSequence& solo, std::optional<LogitsRow> row,
                 request::Outcome& outcome);
  void finish_sampled(const OutputRows& wanted, SampledSequence& solo, std::optional<LogitsRow> row);
  void finish_pooled(const OutputRows& wanted, PooledSequence& pooled);
  void finish_group(SeqId owner, std::span<const OutputRows> lanes);
  void read_prompt_logprobs(const OutputRows& wanted, const request::Request& request,
                            std::span<const Token> tokens, request::Outcome& outcome);
  Result<request::Sampled> sample(SampledSequence& solo, LogitsRow row);
  std::span<const float> read_hidden(const OutputRows& wanted, int begin);

  const models::Model& model_;
  ExecutorOptions options_;
  std::unique_ptr<ModelRunner> target_, contrast_;
  std::unordered_map<SeqId, SampledSequence> sampled_sequences_;
  std::unordered_set<SeqId> starved_;  // there was no memory for them: all their work fails
  std::unordered_map<SeqId, PooledSequence> pooled_;
  std::unordered_map<SeqId, Group> groups_;
  std::unordered_map<SeqId, std::pair<SeqId, size_t>> lane_of_;  // lane sequence → group, index
  std::optional<OverlappedStepRunner> ahead_;
  std::deque<Submitted> submitted_;
  std::vector<request::Outcome> outcomes_;  // of the step that is being submitted
  sampling::Workspace workspace_;
  ModelRunner::Rows rows_, sampled_rows_, contrast_rows_;
  uint64_t entropy_ = 0;
  TimePoint files_checked_{};
  Status files_;  // of the last check
};

}  // namespace sluice::runtime
