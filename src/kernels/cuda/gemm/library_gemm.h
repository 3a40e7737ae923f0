// GEMMs by cuBLASLt through the context of a step. Each of the calls is false, and nothing done, where cuBLASLt does not take
// the shape.
#pragma once

#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

// Tokens [first, first + count) of a GEMM.
GemmParams tokens_of(const GemmParams& whole, int64_t first, int64_t count);

class LibraryGemm {
 public:
  // The context outlives this.
  LibraryGemm(StepContext& step, const CudaOptions& options);

  void set_search(bool on) { lt_.set_search(on); }
  // bf16 on both sides.
  bool multiply(const GemmParams& p);
  // The same by an algorithm that sums as launch_gemm_fixed does; false where there is none.
  bool multiply_fixed(const GemmParams& p);
  // The bias of p, if there is one, to what is in p.out.
  void add_bias(const GemmParams& p);
  // As multiply(), into what `out` holds; without bias.
  bool add(const GemmParams& p);
  bool multiply_fp8(const GemmParams& p);
  // The tokens of p as scaled fp8, in memory that the next call takes again; a gate that was put off is done on the way.
  // REQUIRES: aligned_tokens(p.x).
  struct RoundedTokens {
    const void* data;
    const float* scales;
  };
  RoundedTokens round_tokens(const GemmParams& p);
  // f32 tokens with a bf16 matrix.
  bool multiply_split(const GemmParams& whole);

 private:
  bool call(const CublasLtProblem& problem);

  StepContext& step_;
  CublasLtGemm lt_;
  Scratch scratch_;  // tokens in another type, and the sums of two parts
};

}  // namespace sluice::kernels::cuda
