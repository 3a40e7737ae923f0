// Every operation in plain loops, one thread. Sums are kept in double and rounded to f32 once, so that a fast
// back-end's distance from it is that back-end's own error.
#pragma once

#include "kernels/backend.h"
#include "kernels/chosen_attention.h"
#include "kernels/partial_attention.h"
#include "kernels/recurrent.h"

namespace sluice::kernels {

class RefBackend : public Backend, public RecurrentOps, public PartialAttention, public ChosenAttention {
 public:
  std::string name() const override { return "ref"; }
  bool supports_kv(DType) const override { return true; }

  Memory allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  Memory upload(TensorView host) override;
  void download(TensorView out, TensorView x) override;

  void embed(TensorView out, const Weight& table, std::span<const int32_t> ids) override;
  void matmul(TensorView out, TensorView x, const Weight& weight) override;
  void matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) override;
  void rms_norm(TensorView out, TensorView x, TensorView gain, float eps) override;
  void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) override;
  void add(TensorView out, TensorView a, TensorView b, float b_scale) override;
  void copy(TensorView out, TensorView x) override;
  void gate_rows(TensorView x, TensorView gate, Activation activation) override;
  void scale(TensorView x, float factor) override;
  void softcap(TensorView x, float cap) override;
  void clamp(TensorView x, float limit) override;
  void activate(TensorView out, TensorView x, Activation activation) override;
  void gated(TensorView out, TensorView gate_up, Activation activation) override;
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override;

  void rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table) override;
  void rope(TensorView x, TensorView angles, RopeStyle style) override;
  void write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) override;
  void attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
              const AttentionShape& shape) override;
  void attend_part(const PartialAttended& to, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
                   const AttentionShape& shape) override;
  void attend_chosen_part(const PartialAttended& to, TensorView q, const ChosenKeys& keys,
                          const RaggedBatch& batch, const AttentionShape& shape) override;
  void choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                        const RaggedBatch& batch) override;
  void choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice, const PagedKv& keys,
                     const RaggedBatch& batch) override;
  void attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                     const AttentionShape& shape) override;
  void copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) override;

  void route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) override;
  void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
               const ExpertBank& bank) override;

  void multiply(TensorView out, TensorView a, TensorView b) override;
  void causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                   const StateBatch& batch) override;
  void delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                  const StateBatch& batch) override;
  void selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan, TensorView states,
                      const StateBatch& batch) override;
};

}  // namespace sluice::kernels
