#include "kernels/cuda/weights.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::kernels::cuda {

namespace {

constexpr size_t kChunkBytes = size_t{64} << 20;

cudaMemcpyKind kind_of(const TensorView& view) {
  return view.device == Device::Cpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

// Type a part has on the device.
DType stored_type(const TensorView& part) {
  return is_block(part.dtype) ? part.dtype : DType::BF16;
}

Matrix blank_matrix(DType type, int64_t rows, int64_t cols) {
  Matrix matrix = blank<Matrix>();
  matrix.type = type;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.row_bytes = type == DType::BF16 ? (cols + 7) / 8 * 16 : row_bytes(type, cols);
  return matrix;
}

// Rows of an F32, F16 or F8_E4M3 part, through a piece of device memory that is decoded from.
void upload_converted(const TensorView& part, const Matrix& matrix, std::byte* to, cudaStream_t stream) {
  const int64_t cols = part.dim(1), bytes = row_bytes(part.dtype, cols);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes) / std::max<int64_t>(1, bytes));
  const DeviceBuffer chunk = allocate_device(static_cast<size_t>(std::min(step, part.dim(0)) * bytes));
  for (int64_t row = 0; row < part.dim(0); row += step) {
    const int64_t count = std::min(step, part.dim(0) - row);
    check(cudaMemcpyAsync(chunk.get(), static_cast<const std::byte*>(part.data) + row * bytes,
                          static_cast<size_t>(count * bytes), kind_of(part), stream),
          "upload of a weight");
    DecodeParams p = blank<DecodeParams>();
    p.source = blank_matrix(part.dtype, count, cols);
    p.source.data = chunk.get();
    p.source.row_bytes = bytes;
    p.out = to + row * matrix.row_bytes;
    p.stride = matrix.row_bytes / 2;
    launch_decode(p, stream);
  }
  check(cudaStreamSynchronize(stream), "upload of a weight");
}

void upload_part(const TensorView& part, const Matrix& matrix, std::byte* to, cudaStream_t stream) {
  if (part.dtype != matrix.type) return upload_converted(part, matrix, to, stream);
  const auto width = static_cast<size_t>(row_bytes(part.dtype, part.dim(1)));
  const auto pitch = static_cast<size_t>(matrix.row_bytes);
  if (width == pitch) {
    check(cudaMemcpyAsync(to, part.data, width * static_cast<size_t>(part.dim(0)), kind_of(part), stream),
          "upload of a weight");
    return;
  }
  check(cudaMemset2DAsync(to, pitch, 0, pitch, static_cast<size_t>(part.dim(0)), stream),
        "upload of a weight");
  check(cudaMemcpy2DAsync(to, pitch, part.data, width, width, static_cast<size_t>(part.dim(0)), kind_of(part),
                          stream),
        "upload of a weight");
}

}  // namespace

const DeviceWeight& device_weight(const Weight& weight) {
  SLUICE_CHECK(weight.packed != nullptr);
  return *static_cast<const DeviceWeight*>(weight.packed.get());
}

std::shared_ptr<const DeviceWeight> upload_weight(const Weight& weight, cudaStream_t stream) {
  auto result = std::make_shared<DeviceWeight>();
  for (size_t first = 0; first < weight.parts.size();) {
    size_t last = first;
    int64_t rows = 0;
    const DType type = stored_type(weight.parts[first]);
    while (last < weight.parts.size() && stored_type(weight.parts[last]) == type)
      rows += weight.parts[last++].dim(0);
    Matrix matrix = blank_matrix(type, rows, weight.cols);
    result->memory.push_back(allocate_device(static_cast<size_t>(rows * matrix.row_bytes)));
    auto* to = static_cast<std::byte*>(result->memory.back().get());
    matrix.data = to;
    for (; first < last; ++first) {
      SLUICE_CHECK_EQ(weight.parts[first].dim(1), weight.cols);
      upload_part(weight.parts[first], matrix, to, stream);
      to += weight.parts[first].dim(0) * matrix.row_bytes;
    }
    result->matrices.push_back(matrix);
  }
  if (!weight.bias.empty()) {
    SLUICE_CHECK(weight.bias.dtype == DType::F32 && weight.bias.elements() == weight.rows);
    const auto bytes = static_cast<size_t>(weight.rows) * sizeof(float);
    result->memory.push_back(allocate_device(bytes));
    result->bias = static_cast<const float*>(result->memory.back().get());
    check(cudaMemcpyAsync(result->memory.back().get(), weight.bias.data, bytes, kind_of(weight.bias), stream),
          "upload of a bias");
  }
  check(cudaStreamSynchronize(stream), "upload of a weight");
  return result;
}

}  // namespace sluice::kernels::cuda
