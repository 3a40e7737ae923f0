#include "kernels/cuda/common/weights.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/column_order.h"
#include "kernels/cuda/gemm/gemm_params.h"
#include "kernels/cuda/gemm/quantized/units_gemm.h"

namespace sluice::kernels::cuda {

namespace {

constexpr size_t kChunkBytes = size_t{64} << 20;
constexpr int64_t kFewestFp8Rows =
    1024;  // shorter ones are routers and the like: they cost little and decide much

// Where matrices come from and in which order they go.
struct Way {
  HostUpload& uploads;
  cudaStream_t stream;

  void copy(void* to, const TensorView& from, size_t offset, size_t bytes) const {
    const auto* const source = static_cast<const std::byte*>(from.data) + offset;
    if (from.device == Device::Cpu) return uploads.copy(to, source, bytes);
    check(cudaMemcpyAsync(to, source, bytes, cudaMemcpyDeviceToDevice, stream), "copy of a weight");
  }
};

bool becomes_fp8(const Weight& weight, const TensorView& part, WeightStorage storage) {
  const int64_t rows = weight.joined ? part.dim(0) : weight.rows;
  return storage == WeightStorage::Fp8 && !weight.table && rows >= kFewestFp8Rows && weight.cols % 128 == 0;
}

// Type a part has on the device.
DType stored_type(const Weight& weight, const TensorView& part, WeightStorage storage) {
  if (is_block(part.dtype)) return part.dtype;
  return becomes_fp8(weight, part, storage) ? DType::F8_E4M3 : DType::BF16;
}

// Lists and tables are read in other ways than by whole GEMMs.
Units units_for(const Weight& weight, DType type, const UploadOptions& options) {
  const bool wanted = options.units && !weight.listed && !weight.table && weight.cols % kUnitCols == 0;
  return wanted ? units_of(type) : Units::None;
}

Matrix blank_matrix(DType type, int64_t rows, int64_t cols) {
  Matrix matrix = blank<Matrix>();
  matrix.type = type;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.row_bytes = type == DType::BF16      ? (cols + 7) / 8 * 16
                     : type == DType::F8_E4M3 ? kFp8Header + cols
                                              : row_bytes(type, cols);
  return matrix;
}

void convert(const Matrix& source, const Matrix& matrix, int64_t row, cudaStream_t stream) {
  auto* const out = static_cast<std::byte*>(const_cast<void*>(matrix.data)) + row * matrix.row_bytes;
  if (matrix.units != Units::None) {
    PackUnitsParams p = blank<PackUnitsParams>();
    p.source = source.data;
    p.out = const_cast<void*>(matrix.data);
    p.first_row = row;
    p.rows = source.rows;
    p.cols = source.cols;
    p.source_row_bytes = source.row_bytes;
    p.type = source.type;
    launch_pack_units(p, stream);
  } else if (matrix.scales != nullptr) {
    QuantizeRowsParams p = blank<QuantizeRowsParams>();
    p.source = source;
    p.out = out;
    p.scales = const_cast<float*>(matrix.scales) + row;
    p.out_row_bytes = matrix.row_bytes;
    launch_quantize_rows(p, stream);
  } else {
    DequantizeParams p = blank<DequantizeParams>();
    p.source = source;
    p.out = out;
    p.stride = matrix.row_bytes / 2;
    launch_dequantize(p, stream);
  }
}

// Rows of a part that change their form, through a piece of device memory. `row`: where they start in the matrix.
void upload_converted(const TensorView& part, const Matrix& matrix, int64_t matrix_row, const Way& way) {
  const int64_t cols = part.dim(1), bytes = row_bytes(part.dtype, cols);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes) / std::max<int64_t>(1, bytes));
  const DeviceBuffer chunk = allocate_device(static_cast<size_t>(std::min(step, part.dim(0)) * bytes));
  for (int64_t row = 0; row < part.dim(0); row += step) {
    const int64_t count = std::min(step, part.dim(0) - row);
    way.copy(chunk.get(), part, static_cast<size_t>(row * bytes), static_cast<size_t>(count * bytes));
    Matrix source = blank_matrix(part.dtype, count, cols);
    source.data = chunk.get();
    source.row_bytes = bytes;
    convert(source, matrix, matrix_row + row, way.stream);
  }
  check(cudaStreamSynchronize(way.stream), "upload of a weight");
}

void upload_part(const TensorView& part, const Matrix& matrix, int64_t row, const Way& way) {
  if (part.dtype != matrix.type || matrix.scales != nullptr || matrix.units != Units::None)
    return upload_converted(part, matrix, row, way);
  auto* to = static_cast<std::byte*>(const_cast<void*>(matrix.data)) + row * matrix.row_bytes;
  const auto width = static_cast<size_t>(row_bytes(part.dtype, part.dim(1)));
  const auto pitch = static_cast<size_t>(matrix.row_bytes);
  if (width == pitch) return way.copy(to, part, 0, width * static_cast<size_t>(part.dim(0)));
  const auto kind = part.device == Device::Cpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
  const auto rows = static_cast<size_t>(part.dim(0));
  check(cudaMemset2DAsync(to, pitch, 0, pitch, rows, way.stream), "upload of a weight");
  check(cudaMemcpy2DAsync(to, pitch, part.data, width, width, rows, kind, way.stream), "upload of a weight");
  check(cudaStreamSynchronize(way.stream), "upload of a weight");
}

// A matrix whose units have one scale and offset in a row, as with groups of 64 columns and more, in smaller units.
void group_units(Matrix& matrix, DeviceBuffer& memory, const Way& way) {
  const int64_t held = (matrix.rows + kUnitRows - 1) / kUnitRows * kUnitRows;
  const int64_t units = held / kUnitRows * (matrix.cols / kUnitCols);
  DeviceBuffer smaller = allocate_device(static_cast<size_t>(units * unit_bytes(Units::Q4Group)));
  const DeviceBuffer flag = allocate_device(sizeof(int32_t));
  check(cudaMemsetAsync(flag.get(), 0, sizeof(int32_t), way.stream), "upload of a weight");
  GroupUnitsParams p = blank<GroupUnitsParams>();
  p.source = matrix.data;
  p.out = smaller.get();
  p.differ = static_cast<int32_t*>(flag.get());
  p.units = units;
  launch_group_units(p, way.stream);
  int32_t differ = 0;
  check(cudaMemcpyAsync(&differ, flag.get(), sizeof differ, cudaMemcpyDeviceToHost, way.stream),
        "upload of a weight");
  check(cudaStreamSynchronize(way.stream), "upload of a weight");
  if (differ != 0) return;
  memory = std::move(smaller);
  matrix.data = memory.get();
  matrix.units = Units::Q4Group;
  matrix.row_bytes = matrix.cols / kUnitCols * unit_bytes(matrix.units) / kUnitRows;
}

// An ordered weight as plain rows, which `memory` keeps.
Weight without_order(const Weight& weight, std::vector<HostTensor>& memory) {
  Weight plain = weight;
  for (size_t i = 0; i < plain.parts.size(); ++i) {
    if (plain.orders[i] == nullptr) continue;
    memory.push_back(in_order_of_x(plain.parts[i], *plain.orders[i], 0, plain.parts[i].dim(0)));
    plain.parts[i] = memory.back().view;
  }
  plain.orders.clear();
  return plain;
}

const int32_t* upload_order(const std::vector<int32_t>& order, DeviceWeight& weight, const Way& way) {
  const size_t bytes = order.size() * sizeof(int32_t);
  weight.memory.push_back(allocate_device(bytes));
  way.uploads.copy(weight.memory.back().get(), order.data(), bytes);
  return static_cast<const int32_t*>(weight.memory.back().get());
}

}  // namespace

const DeviceWeight& device_weight(const Weight& weight) {
  SLUICE_CHECK(weight.packed != nullptr);
  return *static_cast<const DeviceWeight*>(weight.packed.get());
}

std::shared_ptr<const DeviceWeight> upload_weight(const Weight& weight, const UploadOptions& options,
                                                  HostUpload& uploads, cudaStream_t stream) {
  const Way way{uploads, stream};
  if (!shares_order(weight)) {
    std::vector<HostTensor>
        memory;  // rows that change their form are on the device when their upload returns
    return upload_weight(without_order(weight, memory), options, uploads, stream);
  }
  auto result = std::make_shared<DeviceWeight>();
  for (size_t first = 0; first < weight.parts.size();) {
    size_t last = first;
    int64_t rows = 0;
    const auto type_of = [&](size_t part) {
      return stored_type(weight, weight.parts[part], options.storage);
    };
    const DType type = type_of(first);
    while (last < weight.parts.size() && type_of(last) == type) rows += weight.parts[last++].dim(0);
    Matrix matrix = blank_matrix(type, rows, weight.cols);
    matrix.units = units_for(weight, type, options);
    if (matrix.units != Units::None)
      matrix.row_bytes = weight.cols / kUnitCols * unit_bytes(matrix.units) / kUnitRows;
    const int64_t held = matrix.units != Units::None ? (rows + kUnitRows - 1) / kUnitRows * kUnitRows : rows;
    const auto bytes = static_cast<size_t>(held * matrix.row_bytes);
    result->memory.push_back(allocate_device(bytes));
    matrix.data = result->memory.back().get();
    if (matrix.units != Units::None)
      check(cudaMemsetAsync(result->memory.back().get(), 0, bytes, stream), "upload of a weight");
    if (type == DType::F8_E4M3) {
      result->memory.push_back(allocate_device(static_cast<size_t>(rows) * sizeof(float)));
      matrix.scales = static_cast<const float*>(result->memory.back().get());
    }
    for (int64_t row = 0; first < last; row += weight.parts[first++].dim(0)) {
      SLUICE_CHECK_EQ(weight.parts[first].dim(1), weight.cols);
      upload_part(weight.parts[first], matrix, row, way);
    }
    if (type == DType::Q4_Z && matrix.units == Units::Q4Offset)
      group_units(matrix, result->memory.back(), way);
    result->matrices.push_back(matrix);
  }
  if (const std::vector<int32_t>* order = column_order(weight))
    result->order = upload_order(*order, *result, way);
  if (!weight.bias.empty()) {
    SLUICE_CHECK(weight.bias.dtype == DType::F32 && weight.bias.elements() == weight.rows);
    const auto bytes = static_cast<size_t>(weight.rows) * sizeof(float);
    result->memory.push_back(allocate_device(bytes));
    result->bias = static_cast<const float*>(result->memory.back().get());
    way.copy(result->memory.back().get(), weight.bias, 0, bytes);
  }
  return result;
}

}  // namespace sluice::kernels::cuda
