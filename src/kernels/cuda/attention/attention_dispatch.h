// Positions, the KV cache and attention. A step's arrays are staged when it begins; a block table when a layer first needs
// it, since only the layer knows the size of a block; an attention plan when a kind of layer first attends.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/latent/latent_plan.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/head_norm.h"

namespace sluice::kernels::cuda {

// scales: of a cache of integers.
CacheView cache_of(const TensorView& view, const TensorView& scales);
AttentionParams without_first(AttentionParams p, int64_t tokens);

class AttentionDispatch {
 public:
  // The context outlives this.
  explicit AttentionDispatch(StepContext& step);

  // Forgets the plans of the step before; the staging has started anew.
  void start_step() { plans_.clear(); }
  void begin(const RaggedBatch& batch);
  void rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table);
  void rope(TensorView x, TensorView angles, RopeStyle style);
  void write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch);
  // False, and nothing done, where the one kernel for both does not take the shape. `norm`: of q and k before, or null.
  bool rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                     const RaggedBatch& batch, const NormedHeads* norm = nullptr);
  void attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
              const AttentionShape& shape);
  void copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves);

  // -- for the parts of latent attention

  // A block table of this step, as the device sees it.
  struct Table {
    int index;
    TableView view;
    std::vector<int32_t> row_begin;  // host copy
    std::vector<int32_t> blocks;     // host copy
    std::vector<int32_t> lengths;    // host; tokens of context of each sequence
    const int32_t* last_length;      // [sequences]
  };
  // Layers whose attention of tokens by themselves is shared out alike.
  struct DecodeAttentionKind {
    const Table* table;
    int kv_heads, window;
    int64_t first, count;  // tokens
    bool whole;
    bool operator==(const DecodeAttentionKind&) const = default;
  };
  struct OnePlan {
    DecodeAttentionKind kind;
    const int32_t* numbers;  // on the device
  };
  // Packs of neighbouring tokens of the sequences after the leading ones.
  struct PackedPlan {
    const Table* table;
    int64_t tokens;        // of a pack, at most
    const int32_t* packs;  // on the device
    int64_t count;
  };
  // Attention over latents: of the leading sequences alone, or of all.
  struct LatentPlanned {
    const Table* table;
    int heads, sequences;
    LatentPlanLayout layout;
    const int32_t* numbers;  // on the device
  };
  // Attention over keys and values made from latents, of the sequences after the leading ones.
  struct ExpandedPlanned {
    const Table* table;
    int heads;
    FlashPlan plan;
    void* schedule;
    const int32_t* slots;  // on the device, [contexts]: where their latents lie in the cache
    int64_t contexts;
  };
  struct Batch {
    const void* identity = nullptr;  // of the caller's positions
    int64_t tokens = 0;
    int sequences = 0;
    bool consecutive = true;  // every sequence runs neighbouring positions
    int singles = 0;          // leading sequences that run one token each
    const int32_t* positions = nullptr;
    const int32_t* seen = nullptr;
    const int32_t* sequence = nullptr;
    const int32_t* query_begin = nullptr;
    // First token of the other sequences, counted from the first of theirs.
    const int32_t* rest_begin = nullptr;
    std::vector<int32_t> query_begin_host, rest_begin_host, positions_host, sequence_host;
    std::deque<Table> tables;
    std::vector<OnePlan> one_plans;
    std::vector<PackedPlan> packed_plans;
    std::vector<LatentPlanned> latent_plans;
    std::vector<ExpandedPlanned> expanded_plans;
  };

  const Batch& batch_of(const RaggedBatch& batch);
  const Table& table_of(const RaggedBatch& batch, const PagedKv& kv);
  Batch& staged() { return batch_; }

 private:
  struct Plan {
    FlashShape shape;
    int table, first;  // first: sequence that the plan starts with
    bool hopper;
    FlashPlan plan;
    void* schedule;
  };
  const Plan& plan_of(const FlashShape& shape, const Table& table, int first, bool hopper);
  void attend_rounded(const AttentionParams& params, const Table& table);
  void attend_on(const AttentionParams& params, const Table& table);
  int attend_singles(const AttentionParams& params, const Table& table);
  void attend_fixed(const AttentionParams& params, const Table& table);
  void attend_tiles(const AttentionParams& params, int first);
  bool attend_each(const AttentionParams& params, const Table& table, int64_t count);
  const PackedPlan& packed_plan(const Table& table, int64_t tokens);
  const int32_t* one_plan(const DecodeAttentionKind& wanted);
  void copy_blocks_of(const TensorView& view, std::span<const int32_t> moves);

  StepContext& step_;
  Scratch scratch_;  // f32 queries and results as bf16
  Scratch flash_partial_;
  DeviceBuffer decode_workspace_;  // of decode_attention.cu
  Batch batch_;
  std::vector<Plan> plans_;
};

}  // namespace sluice::kernels::cuda
