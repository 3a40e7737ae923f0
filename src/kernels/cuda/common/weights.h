// Matrices on the device, as prepare() makes them from a Weight.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/common/host_upload.h"
#include "kernels/cuda/common/params.h"
#include "kernels/weight.h"

namespace sluice::kernels::cuda {

// Weight::packed of this back-end. Neighbouring parts of one kind are one matrix: plain types become bf16 or scaled fp8,
// block types units, where there are some for them and the GEMMs are to use them; else they stay as they are stored.
struct DeviceWeight {
  std::vector<Matrix> matrices;  // stacked by rows
  const float* bias = nullptr;   // [rows] or null
  const int32_t* order =
      nullptr;  // [cols]: column k is multiplied with column order[k] of the tokens; null: with column k
  std::vector<DeviceBuffer> memory;
};

// REQUIRES: the weight has been prepared by this back-end.
const DeviceWeight& device_weight(const Weight& weight);

struct UploadOptions {
  WeightStorage storage = WeightStorage::AsStored;
  bool units = false;
};
// Parts that differ in the order of their columns become plain, in the order of tokens. In the order of the stream, which
// `uploads` belongs to.
std::shared_ptr<const DeviceWeight> upload_weight(const Weight& weight, const UploadOptions& options,
                                                  HostUpload& uploads, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
