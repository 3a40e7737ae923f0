#include "tensor/tensor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace sluice {

TensorView TensorView::contiguous(void* data, DType dtype, std::span<const int64_t> shape, Device device) {
  SLUICE_CHECK_LE(shape.size(), size_t{4});
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  view.rank = static_cast<int8_t>(shape.size());
  size_t i = 0;
  for (int64_t extent : shape) view.shape[i++] = extent;
  int64_t step = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    view.stride[k] = step;
    step *= view.shape[k];
  }
  return view;
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

bool TensorView::is_contiguous() const {
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto k = static_cast<size_t>(i);
    if (shape[k] != 1 && stride[k] != step) return false;
    step *= shape[k];
  }
  return true;
}

TensorView TensorView::rows(int64_t begin, int64_t end) const {
  SLUICE_CHECK(0 <= begin && begin <= end && end <= shape[0]);
  TensorView view = *this;
  view.shape[0] = end - begin;
  if (is_block(dtype)) SLUICE_CHECK(is_contiguous());
  view.data = static_cast<std::byte*>(data) + row_bytes(dtype, begin * stride[0]);
  return view;
}

TensorView TensorView::columns(int64_t begin, int64_t end) const {
  SLUICE_CHECK(rank == 2 && !is_block(dtype) && stride[1] == 1);
  SLUICE_CHECK(0 <= begin && begin <= end && end <= shape[1]);
  TensorView view = *this;
  view.shape[1] = end - begin;
  view.data = static_cast<std::byte*>(data) + row_bytes(dtype, begin);
  return view;
}

TensorView TensorView::swapped(int a, int b) const {
  SLUICE_CHECK(!is_block(dtype) && 0 <= a && a < rank && 0 <= b && b < rank);
  TensorView view = *this;
  std::swap(view.shape[static_cast<size_t>(a)], view.shape[static_cast<size_t>(b)]);
  std::swap(view.stride[static_cast<size_t>(a)], view.stride[static_cast<size_t>(b)]);
  return view;
}

TensorView TensorView::columns_as_heads(int64_t begin, int64_t heads, int64_t width) const {
  TensorView view = columns(begin, begin + heads * width);
  view.rank = 3;
  view.shape = {shape[0], heads, width, 0};
  view.stride = {stride[0], width, 1, 0};
  return view;
}

std::string TensorView::describe() const {
  std::string text = fmt::format("{}[", name(dtype));
  for (int i = 0; i < rank; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[static_cast<size_t>(i)]);
  return text + "]";
}

namespace {

// From here on pages come straight from the system, zeroed and only when they are touched: a large buffer costs what is
// used of it.
constexpr size_t kMapped = size_t{1} << 20;

void* zeroed(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, rounded);
  if (memory != nullptr) std::memset(memory, 0, rounded);
  return memory;
}

void* mapped(size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : size_(bytes) {
  void* memory = bytes >= kMapped ? mapped(bytes) : zeroed(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  data_ = {static_cast<std::byte*>(memory), Free{bytes}};
}

void HostBuffer::Free::operator()(std::byte* pointer) const {
  if (bytes >= kMapped) {
    munmap(pointer, bytes);
  } else {
    std::free(pointer);
  }
}

HostTensor HostTensor::make(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  HostTensor tensor{HostBuffer(static_cast<size_t>(view.bytes())), view};
  tensor.view.data = tensor.buffer.data();
  return tensor;
}

}  // namespace sluice
