// GEMMs: the row of gemm_table.h, and the calls that its kernels need.
#pragma once

#include <optional>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "kernels/cuda/gemm/grouped/pointer_tables.h"
#include "kernels/cuda/gemm/library_gemm.h"
#include "kernels/cuda/gemm/quantized/units_gemm.h"

namespace sluice::kernels::cuda {

// out = x · weightᵀ, but for the matrix itself.
GemmParams gemm_params(const TensorView& out, const TensorView& x, const Weight& weight);

class GemmDispatch {
 public:
  // The context outlives this.
  GemmDispatch(StepContext& step, const CudaOptions& options);

  void set_search(bool on) { library_.set_search(on); }
  // Takes the memory that the matrix needs to become bf16; for when weights are loaded, since what is left of the
  // memory is shared out afterwards.
  void reserve(const Matrix& matrix);

  void matmul(TensorView out, TensorView x, const Weight& weight);
  void matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights);
  // out = activation(gate) * up of the halves of x · gate_upᵀ. False, and nothing done, where that is not one kernel.
  bool matmul_gated(TensorView out, TensorView x, const Weight& gate_up, Activation activation);
  // Whether the tokens of that product are rounded to fp8 first.
  bool rounds_tokens(TensorView out, TensorView x, const Weight& weight) const;
  // sum += x · weightᵀ. False, and nothing done, where a pass of its own is to add it.
  bool matmul_add(TensorView sum, TensorView x, const Weight& weight);
  // The same, and normed = rms_norm(sum), of which a part is put off until the next GEMM. False, and nothing done, where
  // that is not what the GEMM's kernel does.
  bool matmul_add_norm(TensorView normed, TensorView sum, const kernels::DeferredMatmul& gemm,
                       const kernels::RmsGain& gain);

 private:
  // x, or a copy of it in the order of the weight's columns, in memory that the next call takes again.
  View in_order(const View& x, const DeviceWeight& weight);
  const GemmRow& row_of(GemmUse use, const GemmParams& p) const;
  bool has_kernel(GemmUse use, const GemmParams& p) const;

  void gemm(const GemmParams& p);
  // f32 results of bf16 tokens.
  void wide(const GemmParams& p);
  // The rows that cuBLASLt takes, then the few behind them; false, and nothing done, where it takes none or all.
  bool wide_in_parts(const GemmParams& p);
  bool gated(const GatedGemmParams& p);
  bool added(const GemmParams& p);
  // The GEMM with the norm that was put off where that makes its x.
  GemmParams with_norm(const GemmParams& gemm, bool takes);
  // The GEMM with what is left of a norm that was put off, if that makes its x.
  GemmParams with_factors(const GemmParams& gemm);
  // false, and nothing done, where the kernel does not take the shape.
  bool run(GemmKernel kernel, const GemmParams& p);
  bool run_gated(GemmKernel kernel, const GatedGemmParams& p);
  // Gated where an activation is given.
  bool units_few(const GemmParams& p, std::optional<int32_t> activation = {});
  template <class Params>
  bool issue_if(bool fits, void (*launch)(const Params&, Stream), const Params& params);

  // Its columns shared out among blocks; gated where an activation is given.
  bool split(const GemmParams& p, std::optional<int32_t> activation = {});
  void tile(const GemmParams& p);
  // Sums that do not depend on the number of tokens: of bf16, and of fp8.
  bool fixed(const GemmParams& whole);
  bool fixed_fp8(const GemmParams& whole);
  bool fixed_library(const GemmParams& p);
  void panels(const GemmParams& whole);
  bool panels_sm90(const GemmParams& p);
  void units_to_bf16(const GemmParams& whole);
  // A matrix in units as bf16, in memory that the next call takes again.
  Matrix unpacked(const Matrix& matrix);

  StepContext& step_;
  LibraryGemm library_;
  PointerTables heads_;
  Scratch scratch_;       // panels, and tokens for them
  Scratch ordered_;       // tokens in the order of a weight's columns
  Scratch unpacked_;      // a matrix in units as bf16
  Scratch scratch_wide_;  // bf16 results that become f32
  Scratch squares_;       // of rows whose norm is put off
};

}  // namespace sluice::kernels::cuda
