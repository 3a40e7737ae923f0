// Cuts each operation into pieces, shares them out over one pool of threads and runs the chosen level's
// kernels on them. How an operation is cut changes no bit of its result.
#pragma once

#include <vector>

#include "base/system/cores.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/chosen_attention.h"
#include "kernels/cpu/gemm/activations.h"
#include "kernels/cpu/gemm/expert_groups.h"
#include "kernels/cpu/panels/packed_weight.h"
#include "kernels/cpu/simd/isa.h"
#include "kernels/observe.h"
#include "kernels/part_sums.h"
#include "kernels/partial_attention.h"
#include "kernels/recurrent.h"

namespace sluice::kernels::cpu {

class CpuBackend : public Backend,
                   public RecurrentOps,
                   public ObservableGemms,
                   public PartialAttention,
                   public ChosenAttention,
                   public PartSums {
 public:
  CpuBackend(IsaLevel level, const ComputeCores& cores, bool repack);

  std::string name() const override;
  void set_observer(GemmObserver* observer) override { observer_ = observer; }

  Memory allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  Weight prepare(Weight weight) override;
  Weight prepare_tied(Weight table) override;
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
  void rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                     const RaggedBatch& batch) override;
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

  void add_rms_norm(TensorView out, const Residual& x, const RmsGain& norm) override;
  int threads() const override { return pool_.threads(); }
  void rest() override { pool_.rest(); }
  void add_parts(TensorView out, std::span<const TensorView> parts) override;
  void add_parts_rms_norm(TensorView out, const Residual& x, std::span<const TensorView> parts,
                          const RmsGain& norm) override;
  void square_sums(TensorView sums, TensorView x) override;
  void norm_by_sums(TensorView x, TensorView sums, int64_t row_width, const RmsGain& norm) override;

  void multiply(TensorView out, TensorView a, TensorView b) override;
  void causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                   const StateBatch& batch) override;
  void delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                  const StateBatch& batch) override;
  void selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan, TensorView states,
                      const StateBatch& batch) override;

 private:
  // Calls row(i) for each of `rows` rows of `width` elements, on all threads where that pays.
  void for_rows(int64_t rows, int64_t width, FunctionRef<void(int64_t)> row);
  // Calls piece(i, begin, end) for columns [begin, end) of row i until all are covered: few long rows go to many threads.
  void for_pieces(int64_t rows, int64_t width, FunctionRef<void(int64_t, int64_t, int64_t)> piece);
  void rope_token(const TensorView& x, const TensorView& angles, RopeStyle style, int64_t token) const;
  // q [n, heads, width] with each head rotated in blocks of columns, valid until the next call.
  TensorView rotated_queries(TensorView q, int64_t block);
  // The forms of x that GEMMs with `weight` read besides x itself, valid until the next call.
  Activations prepare_activations(TensorView x, const Weight& weight);
  void fill_int_tiles(ActivationTile* tiles, TensorView x);
  const float* column_tiles(TensorView x);
  // x, or a copy in the order of the weight's columns that is valid until the next call.
  TensorView in_order(TensorView x, const Weight& weight);
  static int64_t tokens_at_once(const Weight& weight, const Activations& activations);
  Weight prepare_parts(Weight weight);  // which share an order
  // Row groups of the weight (32 rows of one part each) for all tokens, on the calling thread.
  void gemm_groups(TensorView out, TensorView x, const Weight& weight, const Activations& activations,
                   RowGroups groups) const;
  struct ExpertStep;
  void read_experts_input(const ExpertStep& step);
  void run_experts_grouped(const ExpertStep& step);
  void run_experts_singly(const ExpertStep& step);
  void add_up_experts(TensorView out, const ExpertStep& step);
  void activate_hidden(const ExpertStep& step, float* hidden, ColumnRange columns) const;

  IsaLevel level_;
  const KernelTable& kernels_;
  const PanelKernels& panel_kernels_;
  const RecurrentKernels& recurrent_;
  bool repack_;
  GemmObserver* observer_ = nullptr;
  PanelMemory panels_;
  ThreadPool pool_;
  ActivationScratch forms_;        // of the GEMM under way
  ActivationScratch inner_forms_;  // of what experts' second GEMMs read
  ExpertGroups groups_;            // of the mixture under way
  std::vector<float> expert_rows_, expert_hidden_;
  std::vector<float> ordered_;
  std::vector<float> rotated_;  // queries of the attention under way
};

}  // namespace sluice::kernels::cpu
