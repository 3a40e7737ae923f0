// One model on its back-end with its KV memory: what a step needs to compute hidden states and logits.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "models/decoder/decoder.h"
#include "models/model.h"
#include "runtime/batch.h"
#include "runtime/memory/block_mover.h"
#include "runtime/memory/kv_memory.h"
#include "runtime/parallel/order.h"

namespace sluice::runtime {

// Where a group of ranks computes the model, rank 0 tells the others what it does, and they follow (parallel/worker.h).
class ModelRunner {
 public:
  ~ModelRunner();
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;
  static Result<std::unique_ptr<ModelRunner>> make(const models::Model& model, const KvMemoryOptions& memory,
                                                   const TierOptions& tiers);

  const models::Model& model() const { return model_; }
  KvMemory& memory() { return memory_; }
  const KvMemory& memory() const { return memory_; }
  BlockMover& mover() { return *mover_; }
  void move(std::span<const request::BlockMove> moves);

  // `rows`: those that logits() and read() will be asked for, ascending; absent: any.
  void forward(Batch& batch, std::optional<std::span<const int32_t>> rows = {});
  void forward(const Pass& pass);
  // Of rows of the last forward pass, on the device. Valid until the next call of any method.
  TensorView hidden(std::span<const int32_t> rows) { return decoder_.hidden(rows); }  // [rows, dim]
  struct Outputs {
    TensorView hidden, logits;  // [rows, dim], [rows, vocab]
  };
  Outputs outputs(std::span<const int32_t> rows) {
    const TensorView hidden = decoder_.hidden(rows);
    return {hidden, decoder_.logits(hidden)};
  }
  // Host copies for rows of the last forward pass. logits [rows, vocab], hidden [rows, dim]; what is not
  // wanted stays as it was.
  struct Rows {
    std::vector<float> logits, hidden;
    std::vector<float> stream, tapped;  // as models::Decoder has them; one rank alone reads these
  };
  struct Wanted {
    bool logits = false, hidden = false;
    bool stream = false, tapped = false;
  };
  void set_taps(std::vector<int> layers) { decoder_.set_taps(std::move(layers)); }
  void read(std::span<const int32_t> rows, Wanted wanted, Rows& out);
  // The same in two calls, where another rank has the last layers: passes may be run before the rows are taken, in the order
  // they were asked for. REQUIRES: steps_in_flight() > 1
  void ask(std::span<const int32_t> rows, Wanted wanted);
  void take(Rows& out);
  // Rows that were asked for and that nobody will take.
  void drop_asked();
  // Every rank times the parts of its steps from here on; REQUIRES: they run on the host.
  void time_steps();
  // What they were; of every rank, in their order, on rank 0.
  std::vector<models::PartTimes> step_times();
  // As models::ModelGroup has it.
  int steps_in_flight() const { return model_.group ? model_.group->steps_in_flight() : 1; }
  // As models::Decoder has them; of one rank alone.
  void keep_queries(std::span<const int32_t> rows) { decoder_.keep_queries(rows); }
  TensorView queries(size_t layer) { return decoder_.queries(layer); }

 private:
  ModelRunner(const models::Model& model, const KvMemoryOptions& memory);

  // Whether ranks on devices run a pass of this shape often enough to record it.
  bool is_recorded(const Pass& pass) const;
  // The group that is to be told; null: none.
  models::ModelGroup* followers() const;
  // Tells the group what read() is asked for.
  void order_rows(std::span<const int32_t> rows, Wanted wanted);
  // From the rank that has the last layers to rank 0, where that is another: hidden states, where they are wanted or rank 0
  // makes logits of them, then the logits of that rank, row by row.
  void post_rows(std::span<const float> values);
  void receive_rows(size_t rows, Wanted wanted, Rows& out);
  // Rank 0 computes the first of the logits from the hidden states, and the rank of the last layers the others.
  bool shares_logits() const;

  // Logs how much memory this rank of a group has for its steps, where it has grown.
  void tell_scratch(size_t tokens);

  const models::Model& model_;
  models::Decoder decoder_;
  std::optional<models::PartClock> clock_;
  int64_t told_scratch_ = 0;
  struct Asked {
    size_t rows = 0;
    Wanted wanted;
  };
  std::deque<Asked> asked_;         // and not taken yet
  std::vector<float> last_hidden_;  // of the last stage
  KvMemory memory_;
  std::unique_ptr<BlockMover> mover_;
};

}  // namespace sluice::runtime
