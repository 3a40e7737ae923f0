// The tensor descriptions of a GGUF file (u64 name length, name, u32 number of dimensions, the dimensions as
// i64 with the innermost first, u32 type, u64 offset), and the layout of the data behind them.
#include <array>
#include <span>
#include <unordered_set>

#include "formats/checked.h"
#include "formats/gguf/gguf_input.h"
#include "formats/gguf/gguf_types.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

constexpr uint64_t kMaxGgufNameBytes = 63;
constexpr uint32_t kMaxGgufRank = 4;

struct Description {
  std::string_view name;
  const GgmlType* type = nullptr;
  uint32_t rank = 0;
  std::array<int64_t, kMaxGgufRank> extents{};  // outermost first
  uint64_t offset = 0;                          // from the start of the data
  uint64_t bytes = 0;

  std::span<const int64_t> shape() const { return {extents.data(), rank}; }
};

Result<std::string_view> read_name(GgufInput& input, uint64_t index) {
  const auto bytes = input.in.read<uint64_t>();
  if (input.in.failed()) return input.truncated(fmt::format("length of the name of tensor {}", index));
  if (bytes == 0 || bytes > kMaxGgufNameBytes) {
    return input.corrupt("name of tensor {} has {} bytes, must have 1 to {}", index, bytes,
                         kMaxGgufNameBytes);
  }
  const std::string_view name = input.in.take(bytes);
  if (input.in.failed()) return input.truncated(fmt::format("name of tensor {}", index));
  if (!is_plain_name(name)) {
    return input.corrupt("name of tensor {} is {}, must be UTF-8 without control characters", index,
                         quote(name));
  }
  return name;
}

Status read_shape(GgufInput& input, Description& tensor) {
  tensor.rank = input.in.read<uint32_t>();
  if (input.in.failed())
    return input.truncated(fmt::format("number of dimensions of tensor {}", quote(tensor.name)));
  if (tensor.rank > kMaxGgufRank) {
    return input.corrupt("tensor {} has {} dimensions, limit {}", quote(tensor.name), tensor.rank,
                         kMaxGgufRank);
  }
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    const auto extent = input.in.read<int64_t>();
    if (input.in.failed())
      return input.truncated(fmt::format("dimension {} of tensor {}", i, quote(tensor.name)));
    if (extent <= 0) {
      return input.corrupt("dimension {} of tensor {} is {}, must be 1 to 2^63 - 1", i, quote(tensor.name),
                           extent);
    }
    tensor.extents[tensor.rank - 1 - i] = extent;
  }
  return {};
}

Status compute_bytes(const GgufInput& input, Description& tensor) {
  const std::optional<int64_t> elements = checked_elements(tensor.shape());
  const std::string shape = fmt::format("[{}]", fmt::join(tensor.shape(), ", "));
  if (!elements) {
    return input.corrupt("shape {} of tensor {} overflows, limit 2^63 - 1 elements", shape,
                         quote(tensor.name));
  }
  const int64_t innermost = tensor.rank == 0 ? 1 : tensor.shape().back();
  if (innermost % tensor.type->block_elements != 0) {
    return input.corrupt("rows of tensor {} have {} elements, must be a multiple of {} for type {}",
                         quote(tensor.name), innermost, tensor.type->block_elements, tensor.type->name);
  }
  const auto blocks = static_cast<uint64_t>(*elements / tensor.type->block_elements);
  const std::optional<uint64_t> bytes =
      checked_multiply(blocks, static_cast<uint64_t>(tensor.type->block_bytes));
  if (!bytes) {
    return input.corrupt("shape {} of tensor {} in type {} overflows, limit 2^64 - 1 bytes", shape,
                         quote(tensor.name), tensor.type->name);
  }
  tensor.bytes = *bytes;
  return {};
}

Result<Description> read_description(GgufInput& input, uint64_t index) {
  Description tensor;
  const Result<std::string_view> name = read_name(input, index);
  if (!name.ok()) return name.error();
  tensor.name = *name;
  if (Status shape = read_shape(input, tensor); !shape.ok()) return shape.error();
  const auto type = input.in.read<uint32_t>();
  if (input.in.failed()) return input.truncated(fmt::format("type of tensor {}", quote(tensor.name)));
  tensor.type = find_ggml_type(type);
  if (tensor.type == nullptr) {
    return input.corrupt("type of tensor {} is {}, which the format does not have (0 to {}, with gaps)",
                         quote(tensor.name), type, kGgmlTypes.back().id);
  }
  if (Status size = compute_bytes(input, tensor); !size.ok()) return size.error();
  tensor.offset = input.in.read<uint64_t>();
  if (input.in.failed()) return input.truncated(fmt::format("offset of tensor {}", quote(tensor.name)));
  return tensor;
}

// Tensors follow one another in the order of their descriptions, each at the next multiple of the alignment;
// the last may end at the end of the file, without padding.
Status check_layout(const GgufInput& input, std::span<const Description> tensors, uint64_t alignment) {
  std::optional<uint64_t> next = 0;
  for (const Description& tensor : tensors) {
    if (tensor.offset != *next) {
      return input.corrupt("offset of tensor {} is {}, must be {} (alignment {})", quote(tensor.name),
                           tensor.offset, *next, alignment);
    }
    const std::optional<uint64_t> end = checked_add(tensor.offset, tensor.bytes);
    next = end ? checked_align(*end, alignment) : std::nullopt;
    if (!next) {
      return input.corrupt("tensor {} of {} bytes at offset {} overflows, limit 2^64 - 1", quote(tensor.name),
                           tensor.bytes, tensor.offset);
    }
  }
  const uint64_t begin = *checked_align(input.in.position(), alignment);
  const std::optional<uint64_t> end =
      tensors.empty() ? 0 : checked_add(begin, tensors.back().offset + tensors.back().bytes);
  if (end && *end <= input.in.size()) return {};
  return input.corrupt("is {} bytes, its {} tensors need {} (download incomplete?)", input.in.size(),
                       tensors.size(), end ? fmt::to_string(*end) : "over 2^64");
}

void add_tensor(TensorStore& store, const Description& tensor, const char* data) {
  void* begin = const_cast<char*>(data);
  if (tensor.type->dtype) {
    store.add(std::string(tensor.name), TensorView::contiguous(begin, *tensor.type->dtype, tensor.shape()));
  } else {
    const TensorView bytes = TensorView::contiguous(begin, DType::U8, {static_cast<int64_t>(tensor.bytes)});
    store.add(std::string(tensor.name), bytes, std::string(tensor.type->name));
  }
}

}  // namespace

Result<TensorStore> read_gguf_tensors(GgufInput& input, std::string_view file, uint64_t count,
                                      uint32_t alignment) {
  std::vector<Description> tensors;
  std::unordered_set<std::string_view> names;
  tensors.reserve(count);
  names.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const Result<Description> tensor = read_description(input, i);
    if (!tensor.ok()) return tensor.error();
    if (!names.insert(tensor->name).second) {
      return input.corrupt("tensor {} is there twice, must be unique", quote(tensor->name));
    }
    tensors.push_back(*tensor);
  }
  if (Status layout = check_layout(input, tensors, alignment); !layout.ok()) return layout.error();
  TensorStore store;
  const uint64_t data_begin = *checked_align(input.in.position(), alignment);
  for (const Description& tensor : tensors)
    add_tensor(store, tensor, file.data() + data_begin + tensor.offset);
  return store;
}

}  // namespace sluice::formats
