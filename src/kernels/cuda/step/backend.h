// The class behind make_cuda_backend: owns the dispatchers of each kind of operation and forwards to them.
#pragma once

#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/chosen/chosen_dispatch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/key_weights/key_weights.h"
#include "kernels/cuda/latent/latent_dispatch.h"
#include "kernels/cuda/moe/moe_dispatch.h"
#include "kernels/cuda/recurrent/recurrent_dispatch.h"
#include "kernels/cuda/sampling/sampling_dispatch.h"
#include "kernels/cuda/stack/stack_dispatch.h"
#include "kernels/cuda/step/step_graphs.h"
#include "kernels/cuda/step/token_dispatch.h"
#include "kernels/cuda/step/transfers.h"
#include "kernels/even_step.h"
#include "kernels/group_device.h"

namespace sluice::kernels::cuda {

class CudaBackendImpl final : public CudaBackend,
                              public LatentDevice,
                              public HeadNormDevice,
                              public LayerStackDevice,
                              public KeyWeightDevice,
                              public GroupDevice,
                              public ChosenAttention,
                              public RecurrentOps {
 public:
  CudaBackendImpl(const CudaOptions& options, const StepContext::Options& device, std::string name);
  ~CudaBackendImpl() override;

  std::string name() const override { return name_; }
  DType activation_type() const override { return activations_; }
  void expect_magnified_errors() override;
  bool supports_kv(DType) const override { return true; }

  Memory allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  std::string_view kv_form(DType) const override { return "head-major"; }
  Memory allocate_kv(DType dtype, std::array<int64_t, 4> shape) override;
  Weight prepare(Weight weight) override;
  int64_t even_step_tokens() const override;
  Memory upload(TensorView host) override;
  void download(TensorView out, TensorView x) override;
  void begin(const RaggedBatch& batch) override;

  void embed(TensorView out, const Weight& table, std::span<const int32_t> ids) override {
    tokens_.embed(out, table, ids);
  }
  void rms_norm(TensorView out, TensorView x, TensorView gain, float eps) override {
    tokens_.rms_norm(out, x, gain, eps);
  }
  void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) override {
    tokens_.layer_norm(out, x, gain, bias, eps);
  }
  void add(TensorView out, TensorView a, TensorView b, float b_scale) override {
    tokens_.add(out, a, b, b_scale);
  }
  void copy(TensorView out, TensorView x) override { tokens_.map(Pointwise::Copy, out, x, 0.0f); }
  void gate_rows(TensorView x, TensorView gate, Activation activation) override {
    tokens_.gate_rows(x, gate, activation);
  }
  void scale(TensorView x, float factor) override { tokens_.map(Pointwise::Scale, x, x, factor); }
  void softcap(TensorView x, float cap) override { tokens_.map(Pointwise::Softcap, x, x, cap); }
  void clamp(TensorView x, float limit) override { tokens_.map(Pointwise::Clamp, x, x, limit); }
  void activate(TensorView out, TensorView x, Activation activation) override {
    tokens_.activate(out, x, activation);
  }
  void gated(TensorView out, TensorView gate_up, Activation activation) override {
    tokens_.gated(out, gate_up, activation);
  }
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override {
    tokens_.gather_rows(out, x, rows);
  }
  void add_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) override {
    tokens_.add_rms_norm(out, x, gain);
  }
  void add_normed(const Residual& x, const RmsGain& branch) override {
    if (!tokens_.add_normed({}, x, branch, {})) CudaBackend::add_normed(x, branch);
  }
  void add_normed_rms_norm(TensorView out, const Residual& x, const RmsGain& branch,
                           const RmsGain& norm) override {
    if (!tokens_.add_normed(out, x, branch, norm)) CudaBackend::add_normed_rms_norm(out, x, branch, norm);
  }

  void matmul(TensorView out, TensorView x, const Weight& weight) override { gemm_.matmul(out, x, weight); }
  void matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) override {
    gemm_.matmul_heads(out, x, weights);
  }
  void matmul_gated(TensorView out, TensorView wide, TensorView x, const Weight& gate_up,
                    Activation activation) override;
  void matmul_add_rms_norm(TensorView out, const Residual& x, const DeferredMatmul& gemm,
                           const RmsGain& gain) override;

  void rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table) override {
    attention_.rope_angles(angles, batch, table);
  }
  void rope(TensorView x, TensorView angles, RopeStyle style) override { attention_.rope(x, angles, style); }
  void write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) override {
    attention_.write_kv(kv, k, v, batch);
  }
  void rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                     const RaggedBatch& batch) override;
  void attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
              const AttentionShape& shape) override {
    attention_.attend(out, q, kv, batch, shape);
  }
  void copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) override;
  bool norm_rope_write_kv(const PagedKv& kv, const NormedHeads& x, TensorView angles, RopeStyle style,
                          const RaggedBatch& batch) override {
    return attention_.rope_write_kv(kv, x.heads, angles, style, batch, &x);
  }
  bool run_layers(TensorView x, const LayerStack& stack, TensorView angles,
                  const RaggedBatch& batch) override {
    return stack_.run(x, stack, angles, batch);
  }
  bool weigh_keys(std::span<float> largest, std::span<const KeyWeightLayer> layers, int rows,
                  int tokens) override;
  bool write_latent(const PagedKv& kv, const LatentRows& rows, const RmsGain& norm,
                    const RaggedBatch& batch) override {
    return latent_.write(kv, rows, norm, batch);
  }
  bool attend_latent(TensorView out, const LatentQueries& q, const PagedKv& kv, const RaggedBatch& batch,
                     const LatentShape& shape) override {
    return latent_.attend(out, q, kv, batch, shape);
  }

  bool attends_alike() const override { return !step_.deterministic; }
  void choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                        const RaggedBatch& batch) override {
    chosen_.choose_positions(chosen, queries, keys, batch);
  }
  void choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice, const PagedKv& keys,
                     const RaggedBatch& batch) override {
    chosen_.choose_blocks(chosen, q, choice, keys, batch);
  }
  void attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                     const AttentionShape& shape) override {
    chosen_.attend(out, q, keys, batch, shape);
  }

  bool joins_shared_experts() const override { return true; }
  void route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing) override {
    moe_.route(ids, weights, logits, routing);
  }
  void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
               const ExpertBank& bank) override {
    moe_.moe_ffn(out, x, ids, weights, bank);
  }

  void multiply(TensorView out, TensorView a, TensorView b) override { recurrent_.multiply(out, a, b); }
  void causal_conv(TensorView out, TensorView x, const CausalConv& conv, TensorView states,
                   const StateBatch& batch) override {
    recurrent_.causal_conv(out, x, conv, states, batch);
  }
  void delta_rule(TensorView out, const DeltaInput& input, const DeltaRule& rule, TensorView states,
                  const StateBatch& batch) override {
    recurrent_.delta_rule(out, input, rule, states, batch);
  }
  bool gated_delta(TensorView out, const GatedDeltaInput& input, const GatedDeltaLayer& layer,
                   TensorView states, const StateBatch& batch) override {
    return recurrent_.gated_delta(out, input, layer, states, batch);
  }
  bool gated_norm(TensorView out, const GatedNorm& input) override {
    return recurrent_.gated_norm(out, input);
  }
  void selective_scan(TensorView out, const ScanInput& input, const SelectiveScan& scan, TensorView states,
                      const StateBatch& batch) override {
    recurrent_.selective_scan(out, input, scan, states, batch);
  }

  void argmax(TensorView ids, TensorView x) override { sampling_.argmax(ids, x); }
  void embed_device(TensorView out, const Weight& table, TensorView ids) override {
    tokens_.embed_device(out, table, ids);
  }
  int slots() const override { return SamplingDispatch::kSlots; }
  void sample(TensorView logits, std::span<const SampleArgs> rows, std::span<const LogitAdjustment> edits,
              std::span<const uint32_t> masks) override {
    sampling_.sample(logits, rows, edits, masks);
  }
  int64_t send_sampled(size_t count) override { return sampling_.send_sampled(count); }
  std::span<const SampledToken> wait_sampled(int64_t ticket) override {
    return sampling_.wait_sampled(ticket);
  }

  void run_step(const std::function<void()>& body) override;
  int graphs() const override { return static_cast<int>(graphs_.count()); }
  void set_tuning(bool on) override { gemm_.set_search(on); }

  void send_rows(TensorView x, float* pinned) override;
  std::shared_ptr<std::byte> allocate_pinned(size_t bytes) override;
  void copy_to_host(std::byte* pinned, std::span<const Piece> from) override;
  void copy_from_host(std::span<const Piece> to, const std::byte* pinned) override;
  bool copies_pending() const override { return transfers_.side_copies().pending(); }
  void synchronize() override;
  Room room() const override;
  std::string failure() const override;

  std::string identity() const override;
  Result<std::unique_ptr<DeviceCollective>> join(const RankExchange& ranks, Collectives kind) override;

 private:
  // The device is this thread's, and no step is being described.
  void expect_eager() const;

  std::string name_;
  WeightStorage storage_;
  Activations wanted_activations_;
  DType activations_;
  EvenStep even_step_;
  StepContext step_;
  Transfers transfers_;
  SamplingDispatch sampling_;
  TokenDispatch tokens_;
  GemmDispatch gemm_;
  AttentionDispatch attention_;
  StackDispatch stack_;
  KeyWeightDispatch key_weights_;
  ChosenDispatch chosen_;
  LatentDispatch latent_;
  MoeDispatch moe_;
  RecurrentDispatch recurrent_;
  StepGraphs graphs_;
};

}  // namespace sluice::kernels::cuda
