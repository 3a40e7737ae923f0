// Large GEMMs through cuBLASLt: out[n, rows] = x[n, cols] · weight[rows, cols]ᵀ of bf16 operands, or of fp8 operands
// with a scale for each row of both; sums are f32. The algorithm for each (rows, cols, range of n) is found by timing at
// its first use and remembered.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
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
  // REQUIRES: prepare() of the same shape has been called.
  void run(const CublasLtProblem&, cudaStream_t);

 private:
  using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, DType, int32_t>;
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
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
  Timed find(const CublasLtProblem&, const Plan&, cudaStream_t);
  cublasLtMatmulAlgo_t nearest(const CublasLtProblem&, const Plan&) const;
  std::vector<Timed> time_all(const std::vector<cublasLtMatmulAlgo_t>&, const CublasLtProblem&, const Plan&,
                              int repeats, cudaStream_t);
  cublasStatus_t call(const CublasLtProblem&, const Plan&, const cublasLtMatmulAlgo_t&, void* out,
                      cudaStream_t) const;

  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  size_t workspace_bytes_;
  bool search_;
  std::map<Shape, Plan> plans_;
  std::map<std::tuple<int64_t, int64_t, int64_t, bool, bool, DType, int32_t>, cublasLtMatmulAlgo_t>
      found_;  // rows, cols, range, aligned, fp8, out_type, add
};

}  // namespace sluice::kernels::cuda
