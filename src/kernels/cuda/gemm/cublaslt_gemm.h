// Large GEMMs through cuBLASLt: out[n, rows] = x[n, cols] · weight[rows, cols]ᵀ of bf16 operands, or of fp8 operands
// with a scale for each row of both; sums are f32. The algorithm for each (rows, cols, range of n) is found by timing at
// its first use and remembered. Of a problem in fixed order, those that split no columns and give the bits of
// launch_gemm_fixed() for random tokens are candidates; there may be none.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/cuda/common/host.h"
#include "kernels/cuda/gemm/gemm_params.h"

namespace sluice::kernels::cuda {

struct CublasLtProblem {
  void* out;
  const void* x;
  const void* weight;
  int64_t n, rows, cols;
  int64_t out_stride, x_stride, weight_stride;  // elements
  const float* weight_scales;                   // [rows], fp8 only: else both are null
  const float* x_scales;                        // [n]
  DType out_type;                               // BF16 or F32
  int32_t add;                                  // whether out keeps what it holds, and the GEMM is added
  int32_t fixed_order;                          // bf16, not added: with the bits of launch_gemm_fixed()

  bool fp8() const { return weight_scales != nullptr; }
};

bool lt_fits(const CublasLtProblem&);

class CublasLtGemm {
 public:
  CublasLtGemm(size_t workspace_bytes, bool search);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  // Off: a shape seen for the first time takes the algorithm of the nearest range that was searched.
  void set_search(bool on) { search_ = on; }
  // Makes run() of this shape possible; may time algorithms on the stream, so it is not for recording.
  void prepare(const CublasLtProblem&, cudaStream_t);
  // False only of problems in fixed order. REQUIRES: as run().
  bool has_algorithm(const CublasLtProblem&) const;
  // REQUIRES: prepare() of the same shape has been called, and has_algorithm().
  void run(const CublasLtProblem&, cudaStream_t);

 private:
  using Shape =
      std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, DType, int32_t, int32_t>;
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
  };
  struct Timed {
    cublasLtMatmulAlgo_t algorithm{};
    float time = 0;
  };

  static Shape shape_of(const CublasLtProblem&);
  Plan describe(const CublasLtProblem&) const;
  static void set_scales(const Plan&, const CublasLtProblem&);
  std::vector<cublasLtMatmulAlgo_t> proposals(const Plan&, bool fully_aligned) const;
  std::vector<cublasLtMatmulAlgo_t> variants(const Plan&, const cublasLtMatmulAlgo_t&) const;
  std::vector<cublasLtMatmulAlgo_t> with_other_tiles(const Plan&, const cublasLtMatmulAlgo_t&) const;
  bool valid(const Plan&, const cublasLtMatmulAlgo_t&) const;
  // Fastest first.
  std::vector<Timed> find(const CublasLtProblem&, const Plan&, cudaStream_t);
  std::optional<cublasLtMatmulAlgo_t> nearest(const CublasLtProblem&, const Plan&, cudaStream_t);
  // The first whose order of sums is the fixed one.
  std::optional<Timed> first_fixed(const std::vector<Timed>&, const CublasLtProblem&, const Plan&,
                                   cudaStream_t);
  std::vector<Timed> time_all(const std::vector<cublasLtMatmulAlgo_t>&, const CublasLtProblem&, const Plan&,
                              int repeats, cudaStream_t);
  cublasStatus_t call(const CublasLtProblem&, const Plan&, const cublasLtMatmulAlgo_t&, void* out,
                      cudaStream_t) const;

  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  size_t workspace_bytes_;
  bool search_;
  std::map<Shape, Plan> plans_;
  // rows, cols, range, aligned, fp8, out_type, add, fixed_order
  using Range = std::tuple<int64_t, int64_t, int64_t, bool, bool, DType, int32_t, int32_t>;
  std::map<Range, std::optional<cublasLtMatmulAlgo_t>> found_;
};

}  // namespace sluice::kernels::cuda
