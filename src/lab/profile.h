// Where a step's time goes: a back-end that passes every operation on to another and adds up its time, bytes and
// multiplications.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/recurrent.h"
#include "lab/roofline.h"

namespace sluice::lab {

// All calls of one operation, of a GEMM those with matrices of one shape and type.
struct OperationCost {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  StepCost cost;  // what the calls read and multiplied at least
};

// For back-ends that have done an operation when they return from it, and have those of recurrent layers. Fused operations that
// the other back-end composes of plain ones are counted as those.
class ProfiledBackend : public kernels::Backend, public kernels::RecurrentOps {
 public:
  explicit ProfiledBackend(std::shared_ptr<Backend> backend);

  void clear() { costs_.clear(); }
  // Since clear(), the longest first.
  std::vector<OperationCost> costs() const;

  std::string name() const override { return backend_->name(); }
  DType activation_type() const override { return backend_->activation_type(); }
  void expect_magnified_errors() override { backend_->expect_magnified_errors(); }
  bool supports_kv(DType type) const override { return backend_->supports_kv(type); }
  std::string_view kv_form(DType type) const override { return backend_->kv_form(type); }
  kernels::Memory allocate(DType dtype, std::initializer_list<int64_t> shape) override {
    return backend_->allocate(dtype, shape);
  }
  kernels::Memory allocate_kv(DType dtype, std::array<int64_t, 4> shape) override {
    return backend_->allocate_kv(dtype, shape);
  }
  kernels::Weight prepare(kernels::Weight weight) override { return backend_->prepare(std::move(weight)); }
  kernels::Weight prepare_tied(kernels::Weight table) override {
    return backend_->prepare_tied(std::move(table));
  }
  kernels::Memory upload(TensorView host) override { return backend_->upload(host); }
  void download(TensorView out, TensorView x) override;
  void begin(const kernels::RaggedBatch& batch) override { backend_->begin(batch); }

  void embed(TensorView out, const kernels::Weight& table, std::span<const int32_t> ids) override;
  void matmul(TensorView out, TensorView x, const kernels::Weight& weight) override;
  void matmul_heads(TensorView out, TensorView x, std::span<const kernels::Weight> weights) override;
  void rms_norm(TensorView out, TensorView x, TensorView gain, float eps) override;
  void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) override;
  void add(TensorView out, TensorView a, TensorView b, float b_scale) override;
  void copy(TensorView out, TensorView x) override;
  void gate_rows(TensorView x, TensorView gate, kernels::Activation activation) override;
  void scale(TensorView x, float factor) override;
  void softcap(TensorView x, float cap) override;
  void clamp(TensorView x, float limit) override;
  void activate(TensorView out, TensorView x, kernels::Activation activation) override;
  void gated(TensorView out, TensorView gate_up, kernels::Activation activation) override;
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override;
  void rope_angles(TensorView angles, const kernels::RaggedBatch& batch,
                   const kernels::RopeTable& table) override;
  void rope(TensorView x, TensorView angles, kernels::RopeStyle style) override;
  void write_kv(const kernels::PagedKv& kv, TensorView k, TensorView v,
                const kernels::RaggedBatch& batch) override;
  void attend(TensorView out, TensorView q, const kernels::PagedKv& kv, const kernels::RaggedBatch& batch,
              const kernels::AttentionShape& shape) override;
  void copy_blocks(const kernels::PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) override;
  void route(TensorView ids, TensorView weights, TensorView logits, const kernels::Routing& routing) override;
  void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
               const kernels::ExpertBank& bank) override;
  void add_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& norm) override;

  void multiply(TensorView out, TensorView a, TensorView b) override;
  void causal_conv(TensorView out, TensorView x, const kernels::CausalConv& conv, TensorView states,
                   const kernels::StateBatch& batch) override;
  void delta_rule(TensorView out, const kernels::DeltaInput& input, const kernels::DeltaRule& rule,
                  TensorView states, const kernels::StateBatch& batch) override;
  void selective_scan(TensorView out, const kernels::ScanInput& input, const kernels::SelectiveScan& scan,
                      TensorView states, const kernels::StateBatch& batch) override;

 private:
  template <class Call>
  void timed(const std::string& name, const StepCost& cost, Call&& call);

  std::shared_ptr<Backend> backend_;
  RecurrentOps& recurrent_;
  std::map<std::string, OperationCost> costs_;
};

}  // namespace sluice::lab
