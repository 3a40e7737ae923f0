// Tensor maps, made by the driver's function.
#include "kernels/cuda/common/tma.cuh"

namespace sluice::kernels::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// Found at run time, so that the program starts without a driver.
Encode find_encode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_launch(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
      "tensor maps");
  check_launch(entry != nullptr ? cudaSuccess : cudaErrorNotSupported, "tensor maps");
  return reinterpret_cast<Encode>(entry);
}

}  // namespace

CUtensorMap make_tensor_map(const void* data, const BoxLayout& layout) {
  static const Encode encode = find_encode();
  static_assert(sizeof(cuuint64_t) == sizeof(uint64_t) && sizeof(cuuint32_t) == sizeof(uint32_t));
  CUtensorMap map;
  const cuuint32_t step[3] = {1, 1, 1};
  cuuint64_t extent[3], stride[2];
  for (int i = 0; i < 3; ++i) extent[i] = layout.extent[i];
  for (int i = 0; i < 2; ++i) stride[i] = layout.stride[i];
  const bool words = layout.elements == BoxElements::Words;
  const CUresult result =
      encode(&map, words ? CU_TENSOR_MAP_DATA_TYPE_INT64 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             static_cast<cuuint32_t>(layout.rank), const_cast<void*>(data), extent, stride, layout.box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, words ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check_launch(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "tensor map of this shape");
  return map;
}

int multiprocessors() {
  int device = 0, count = 0;
  check_launch(cudaGetDevice(&device), "device query");
  check_launch(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device query");
  return count;
}

}  // namespace sluice::kernels::cuda
