#include "formats/gguf/gguf_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "formats/cursor.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_types.h"
#include "formats/mapped_file.h"
#include "formats/part_file.h"
#include "formats/quote.h"
#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace sluice::formats {

namespace {

constexpr uint32_t kU32 = 4, kString = 8, kArray = 9;
constexpr uint64_t kAlignment = 32;

template <class T>
void append(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_string(std::string& to, std::string_view text) {
  append<uint64_t>(to, text.size());
  to += text;
}

uint64_t aligned(uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t scalar_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// The file was read before: every length is what it says.
void skip_value(Cursor& in, uint32_t type) {
  if (type == kString) {
    in.take(in.read<uint64_t>());
  } else if (type == kArray) {
    const auto element = in.read<uint32_t>();
    const auto count = in.read<uint64_t>();
    if (element != kString && element != kArray) {
      in.take(scalar_bytes(element) * count);
    } else {
      for (uint64_t i = 0; i < count && !in.failed(); ++i) skip_value(in, element);
    }
  } else {
    in.take(scalar_bytes(type));
  }
}

// The pairs of a file, with general.file_type replaced, general.alignment left out, and strings added.
struct Pairs {
  uint64_t count = 0;
  std::string bytes;

  Pairs(std::string_view file, const GgufRewrite& rewrite) {
    Cursor in(file);
    in.take(4 + 4 + 8);
    const auto stored = in.read<uint64_t>();
    for (uint64_t i = 0; i < stored && !in.failed(); ++i) {
      const size_t begin = in.position();
      const std::string_view key = in.take(in.read<uint64_t>());
      const auto type = in.read<uint32_t>();
      const size_t value = in.position();
      skip_value(in, type);
      if (key == "general.alignment" || rewrite.added.contains(std::string(key))) continue;
      std::string pair(file.substr(begin, in.position() - begin));
      if (key == "general.file_type" && type == kU32)
        std::memcpy(pair.data() + (value - begin), &rewrite.file_type, 4);
      bytes += pair;
      ++count;
    }
    for (const auto& [key, text] : rewrite.added) {
      append_string(bytes, key);
      append<uint32_t>(bytes, kString);
      append_string(bytes, text);
      ++count;
    }
  }
};

struct Planned {
  std::string name;
  TensorView from;
  DType type = DType::F32;
  uint64_t offset = 0, bytes = 0;
};

uint32_t id_of(DType type) {
  for (const GgmlType& known : kGgmlTypes)
    if (known.dtype == type) return known.id;
  return 0;
}

Result<std::vector<Planned>> plan(const TensorStore& store, const GgufRewrite& rewrite) {
  std::vector<Planned> all;
  uint64_t offset = 0;
  for (const std::string& name : store.names()) {
    const Result<TensorView> view = store.find(name);
    if (!view) return view.error();
    Planned one{name, *view, rewrite.choose(name, *view), offset, 0};
    one.bytes = static_cast<uint64_t>(row_bytes(one.type, view->elements()));
    offset = aligned(offset + one.bytes);
    all.push_back(std::move(one));
  }
  return all;
}

std::string header_of(const Pairs& pairs, const std::vector<Planned>& tensors) {
  std::string out = "GGUF";
  append<uint32_t>(out, 3);
  append<uint64_t>(out, tensors.size());
  append<uint64_t>(out, pairs.count);
  out += pairs.bytes;
  for (const Planned& tensor : tensors) {
    append_string(out, tensor.name);
    append<uint32_t>(out, static_cast<uint32_t>(tensor.from.rank));
    for (int i = tensor.from.rank - 1; i >= 0; --i)
      append<uint64_t>(out, static_cast<uint64_t>(tensor.from.dim(i)));
    append<uint32_t>(out, id_of(tensor.type));
    append<uint64_t>(out, tensor.offset);
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

// By slice, each [cols] or empty.
using ImportanceOfSlices = std::vector<std::vector<float>>;

Result<ImportanceOfSlices> importance_of(const Planned& tensor, const GgufRewrite& rewrite) {
  ImportanceOfSlices out;
  if (!rewrite.importance || tensor.type == tensor.from.dtype) return out;
  const int64_t slices = tensor.from.rank == 3 ? tensor.from.dim(0) : 1, cols = tensor.from.dim(-1);
  for (int64_t i = 0; i < slices; ++i) {
    out.push_back(rewrite.importance(tensor.name, static_cast<int>(i)));
    if (const size_t found = out.back().size(); found != 0 && found != static_cast<size_t>(cols))
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("tensor {} has {} columns, the calibration has seen {}", quote(tensor.name),
                               cols, found)};
  }
  return out;
}

Result<std::vector<uint8_t>> converted(const Planned& tensor, const ImportanceOfSlices& importance,
                                       ThreadPool& pool) {
  std::vector<uint8_t> out(tensor.bytes);
  if (tensor.type == tensor.from.dtype) {
    std::memcpy(out.data(), tensor.from.data, out.size());
    return out;
  }
  const int64_t cols = tensor.from.dim(-1), rows = tensor.from.elements() / cols;
  const int64_t from_bytes = row_bytes(tensor.from.dtype, cols), to_bytes = row_bytes(tensor.type, cols);
  const int64_t slice_rows = importance.empty() ? rows : rows / static_cast<int64_t>(importance.size());
  const auto counts = [&](int64_t row) -> const float* {
    if (importance.empty()) return nullptr;
    const std::vector<float>& slice = importance[static_cast<size_t>(row / slice_rows)];
    return slice.empty() ? nullptr : slice.data();
  };
  std::atomic<bool> finite{true};
  pool.for_ranges(rows, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_row(tensor.from.dtype, static_cast<const std::byte*>(tensor.from.data) + r * from_bytes,
                     row.data(), cols);
      if (!std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }))
        finite = false;
      else
        quantize_row(tensor.type, row.data(), out.data() + r * to_bytes, cols, counts(r));
    }
  });
  if (!finite)
    return Error{ErrorCode::Corrupt,
                 fmt::format("tensor {} holds values that are not finite", quote(tensor.name))};
  return out;
}

}  // namespace

Status rewrite_gguf(const std::string& in, const std::string& out, const GgufRewrite& rewrite,
                    ThreadPool& pool) {
  const Result<Gguf> gguf = open_gguf(in);
  if (!gguf) return gguf.error();
  if (gguf->tensors.files().size() != 1)
    return Error{ErrorCode::Unsupported, fmt::format("{}: is split over {} files, must be one",
                                                     quote_path(in), gguf->tensors.files().size())};
  const Result<std::vector<Planned>> tensors = plan(gguf->tensors, rewrite);
  if (!tensors) return tensors.error();
  const std::string header = header_of(Pairs(gguf->tensors.files().front()->bytes(), rewrite), *tensors);
  PartFile part(out + ".part");
  const Result<uint64_t> there = part.open(header);
  if (!there) return there.error();
  const uint64_t total = tensors->empty()
                             ? header.size()
                             : header.size() + tensors->back().offset + aligned(tensors->back().bytes);
  for (const Planned& tensor : *tensors) {
    const uint64_t at = header.size() + tensor.offset, end = at + aligned(tensor.bytes);
    if (end <= *there) continue;
    const Result<ImportanceOfSlices> importance = importance_of(tensor, rewrite);
    if (!importance) return importance.error();
    Result<std::vector<uint8_t>> made = converted(tensor, *importance, pool);
    if (!made) return made.error();
    made->resize(aligned(made->size()), 0);
    if (Status written = part.write(made->data(), made->size(), at); !written) return written;
    rewrite.progress(tensor.name, tensor.type, static_cast<int64_t>(end), static_cast<int64_t>(total));
  }
  if (Status cut = part.cut(total); !cut) return cut;
  return part.finish(out);
}

}  // namespace sluice::formats
