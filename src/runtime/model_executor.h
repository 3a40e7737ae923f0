// Runs the engine's steps on a model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "runtime/model_runner.h"
#include "runtime/search.h"
#include "runtime/vector_pool.h"
#include "sched/executor.h"

namespace sluice::runtime {

struct ExecutorOptions {
  KvMemoryOptions memory;  // blocks as the ledger's groups have them on the device tier
  TierOptions tiers;
  std::vector<Token> eos_tokens;  // end a sequence unless its request ignores them
  bool padding = false;           // steps may ask for padded rows
};

// The model, and the amateur of contrastive decoding where there is one (same vocabulary), outlive the
// executor.
class ModelExecutor : public sched::Executor {
 public:
  static Result<std::unique_ptr<ModelExecutor>> make(const models::Model& model, const models::Model* amateur,
                                                     const ExecutorOptions& options);

  void submit(const sched::Step& step, const cache::KvLedger& ledger) override;
  Result<std::vector<sched::Outcome>> collect() override;
  Status reset() override;

  int64_t kv_bytes() const { return expert_->memory().bytes(); }

 private:
  // A sequence that draws its own tokens.
  struct Solo {
    std::vector<Token> tokens;
    decode::TokenSampler sampler;
    std::shared_ptr<const sched::Request> request;
  };
  // A sequence that gives a vector.
  struct Pooled {
    VectorPool pool;
    std::shared_ptr<const sched::Request> request;
  };
  struct Group {
    std::unique_ptr<Search> search;
    std::shared_ptr<const sched::Request> request;
    std::vector<SeqId> lanes;  // by lane of the search
  };
  // Rows of the step whose hidden states or logits somebody wants.
  struct Wanted {
    sched::Work work;
    SeqId owner;    // the sequence, or its group
    int first_row;  // row of position work.begin
  };

  ModelExecutor(const models::Model& model, const ExecutorOptions& options)
      : model_(model), options_(options) {}

  void admit(const sched::Admission& admission);
  void fork(const sched::Fork& fork);
  void retire(SeqId seq);
  void name_lanes(const sched::Lanes& lanes);
  std::span<const Token> tokens_of(SeqId seq) const;
  bool add_work(Batch& batch, const sched::Work& work, const cache::KvLedger& ledger);
  bool touches_lost_block(BlockMover& mover, const sched::Work& work, const cache::KvLedger& ledger) const;
  void add_padding(Batch& batch, int64_t tokens);
  void run_padding(int64_t tokens);

  // A row to sample from, of the model and of the amateur where there is one.
  struct LogitsRow {
    std::span<float> model;
    std::span<const float> amateur;
  };
  void finish(std::vector<Wanted>& wanted);
  void finish_solos(std::span<const Wanted> wanted);
  void finish_solo(const Wanted& wanted, Solo& solo, std::optional<LogitsRow> row);
  void finish_pooled(const Wanted& wanted, Pooled& pooled);
  void finish_group(SeqId owner, std::span<const Wanted> lanes);
  void read_prompt_logprobs(const Wanted& wanted, const sched::Request& request,
                            std::span<const Token> tokens, sched::Outcome& outcome);
  Result<sched::Sampled> sample(Solo& solo, LogitsRow row);
  std::span<const float> read_hidden(const Wanted& wanted, int begin);

  const models::Model& model_;
  ExecutorOptions options_;
  std::unique_ptr<ModelRunner> expert_, amateur_;
  std::unordered_map<SeqId, Solo> solos_;
  std::unordered_map<SeqId, Pooled> pooled_;
  std::unordered_map<SeqId, Group> groups_;
  std::unordered_map<SeqId, std::pair<SeqId, size_t>> lane_of_;  // lane sequence → group, index
  std::vector<sched::Outcome> outcomes_;
  std::optional<Error> failure_;
  decode::Workspace workspace_;
  ModelRunner::Rows rows_, sampled_rows_, amateur_rows_;
  uint64_t entropy_ = 0;
};

}  // namespace sluice::runtime
