// What an array is: a view of memory that somebody else owns, and the buffer that owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace sluice {

enum class Device : uint8_t { Cpu, Cuda };

// Non-owning, passed by value. Shape and stride are in elements, outermost first; the last dimension of a
// block type is contiguous and counts elements, not blocks. An empty view (data == nullptr) stands for
// "not there" where a contract says optional.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::F32;
  Device device = Device::Cpu;
  int8_t rank = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> stride{};

  // REQUIRES: at most 4 dimensions, whose product (zeros left out) is below 2^63.
  static TensorView contiguous(void* data, DType dtype, std::span<const int64_t> shape,
                               Device device = Device::Cpu);
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape,
                               Device device = Device::Cpu) {
    return contiguous(data, dtype, std::span(shape.begin(), shape.size()), device);
  }

  bool empty() const { return data == nullptr; }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i < 0 ? rank + i : i)]; }
  int64_t elements() const;
  int64_t bytes() const { return row_bytes(dtype, elements()); }  // of a contiguous view
  bool is_contiguous() const;

  // Plain types only. Pointer to the element with these leading indices.
  template <class T>
  T* at(int64_t i = 0, int64_t j = 0, int64_t k = 0) const {
    return static_cast<T*>(data) + i * stride[0] + j * stride[1] + k * stride[2];
  }

  // Rows [begin, end) of the first dimension. Block types: the view must be contiguous.
  TensorView rows(int64_t begin, int64_t end) const;
  // Rank 2, plain type: columns [begin, begin + heads * width) seen as [rows, heads, width].
  TensorView columns_as_heads(int64_t begin, int64_t heads, int64_t width) const;
  // Rank 2, plain type: columns [begin, end).
  TensorView columns(int64_t begin, int64_t end) const;

  // Plain types: the same elements with dimensions a and b exchanged.
  TensorView swapped(int a, int b) const;

  std::string describe() const;  // "BF16[320, 128]"
};

// Owns bytes on the host, aligned to 64 and zeroed. Movable.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(size_t bytes);
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    size_t bytes;
    void operator()(std::byte* pointer) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// A contiguous host tensor that owns its memory.
struct HostTensor {
  HostBuffer buffer;
  TensorView view;
  static HostTensor make(DType dtype, std::initializer_list<int64_t> shape);
};

}  // namespace sluice
