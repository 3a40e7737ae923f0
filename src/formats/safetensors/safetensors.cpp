// One safetensors file: u64 header size N (little-endian), N bytes of JSON, then the data of the tensors,
// which follow one another without holes up to the end of the file.
#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/json.h"
#include "formats/checked.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

constexpr uint64_t kPrefixBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxEntries = 1'000'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 32;
constexpr size_t kJsonDepth = 8;

struct FileType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

constexpr std::array<FileType, 22> kFileTypes{{
    {"F32", 32, DType::F32},
    {"F16", 16, DType::F16},
    {"BF16", 16, DType::BF16},
    {"F8_E4M3", 8, DType::F8_E4M3},
    {"I8", 8, DType::I8},
    {"I32", 32, DType::I32},
    {"U8", 8, DType::U8},
    {"BOOL", 8, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, DType::U8},  // exponents of two, as scales are
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},
    {"F64", 64, std::nullopt},
    {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
}};

// One entry of the header, with offsets from the start of the data.
struct Entry {
  std::string_view name;
  const FileType* type = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

template <class... Args>
Error corrupt(std::string_view what, fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::Corrupt, fmt::format("{}: {}", what, fmt::format(format, std::forward<Args>(args)...))};
}

std::string_view view_of(const json::string& text) {
  return {text.data(), text.size()};
}

std::string show(const json::value* value) {
  return value == nullptr ? "missing" : quote(json::serialize(*value));
}

// The JSON text after the length prefix, without the spaces that may pad it.
Result<std::string_view> header_text(std::string_view file, std::string_view what) {
  if (file.size() < kPrefixBytes) {
    return corrupt(what, "is {} bytes, a safetensors header needs at least {} (download incomplete?)",
                   file.size(), kPrefixBytes);
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxHeaderBytes) {
    return corrupt(what, "header length is {}, limit {} (not a safetensors file?)", length, kMaxHeaderBytes);
  }
  if (length > file.size() - kPrefixBytes) {
    return corrupt(what, "is {} bytes, its header needs {} (download incomplete?)", file.size(),
                   kPrefixBytes + length);
  }
  std::string_view text = file.substr(kPrefixBytes, length);
  if (!text.starts_with('{')) {
    return corrupt(what, "header begins with {}, must be '{{'", quote(text.substr(0, 1)));
  }
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (!text.ends_with('}')) {
    return corrupt(what, "header ends with {}, must be '}}' and spaces", quote(text.substr(text.size() - 1)));
  }
  return text;
}

Result<std::map<std::string, std::string>> read_metadata(const json::value& value, std::string_view what) {
  if (!value.is_object()) return corrupt(what, "__metadata__ is {}, must be an object", show(&value));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.get_object()) {
    if (!text.is_string()) {
      return corrupt(what, "__metadata__ {} is {}, must be a string", quote(key), show(&text));
    }
    metadata.emplace(key, text.get_string());
  }
  return metadata;
}

// A list of whole numbers from 0 to 2^63 - 1, written without point or exponent.
Result<std::vector<int64_t>> read_counts(const json::value* value, std::string_view field) {
  if (value == nullptr || !value->is_array()) {
    return Error{ErrorCode::Corrupt, fmt::format("{} is {}, must be an array", field, show(value))};
  }
  std::vector<int64_t> counts;
  counts.reserve(value->get_array().size());
  for (const json::value& item : value->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("{} has {}, must be a whole number from 0 to 2^63 - 1", field, show(&item))};
    }
    counts.push_back(item.get_int64());
  }
  return counts;
}

Status check_size(const Entry& entry) {
  const std::optional<int64_t> elements = checked_elements(entry.shape);
  const std::optional<uint64_t> bits =
      elements ? checked_multiply(static_cast<uint64_t>(*elements), entry.type->bits) : std::nullopt;
  if (!bits) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("shape [{}] of {} overflows, limit 2^63 elements and 2^64 bits",
                             fmt::join(entry.shape, ", "), entry.type->name)};
  }
  if (*bits % 8 != 0) {
    return Error{ErrorCode::Corrupt, fmt::format("shape [{}] of {} is {} bits, must be whole bytes",
                                                 fmt::join(entry.shape, ", "), entry.type->name, *bits)};
  }
  if (entry.end - entry.begin != *bits / 8) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("data_offsets [{}, {}] span {} bytes, shape [{}] of {} needs {}", entry.begin, entry.end,
                    entry.end - entry.begin, fmt::join(entry.shape, ", "), entry.type->name, *bits / 8)};
  }
  return {};
}

// The rules of one entry by itself; the message is without file and tensor name.
Result<Entry> read_entry(std::string_view name, const json::value& value) {
  if (!value.is_object())
    return Error{ErrorCode::Corrupt, fmt::format("is {}, must be an object", show(&value))};
  const json::object& fields = value.get_object();
  const json::value* dtype = fields.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return Error{ErrorCode::Corrupt, fmt::format("dtype is {}, must be a string", show(dtype))};
  }
  Entry entry{.name = name};
  const auto type = std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const FileType& candidate) {
    return candidate.name == view_of(dtype->get_string());
  });
  if (type == kFileTypes.end()) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("dtype {} is not a type of the format", quote(view_of(dtype->get_string())))};
  }
  entry.type = &*type;
  Result<std::vector<int64_t>> shape = read_counts(fields.if_contains("shape"), "shape");
  if (!shape.ok()) return shape.error();
  if (shape->size() > kMaxRank) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("shape has {} dimensions, limit {}", shape->size(), kMaxRank)};
  }
  entry.shape = std::move(*shape);
  const Result<std::vector<int64_t>> offsets =
      read_counts(fields.if_contains("data_offsets"), "data_offsets");
  if (!offsets.ok()) return offsets.error();
  if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("data_offsets is [{}], must be [begin, end] with begin <= end",
                             fmt::join(*offsets, ", "))};
  }
  entry.begin = static_cast<uint64_t>((*offsets)[0]);
  entry.end = static_cast<uint64_t>((*offsets)[1]);
  if (Status size = check_size(entry); !size.ok()) return size.error();
  return entry;
}

Result<std::vector<Entry>> read_entries(const json::object& header, std::string_view what) {
  if (header.size() > kMaxEntries) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{}: header has {} entries, limit {}", what, header.size(), kMaxEntries)};
  }
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [key, value] : header) {
    const std::string_view name(key.data(), key.size());
    if (name == "__metadata__") continue;
    if (name.empty() || name.size() > kMaxNameBytes || !is_plain_name(name)) {
      return corrupt(what, "tensor name {} must have 1 to {} bytes and no control characters", quote(name),
                     kMaxNameBytes);
    }
    Result<Entry> entry = read_entry(name, value);
    if (!entry.ok()) {
      return Error{entry.error().code,
                   fmt::format("{}: tensor {}: {}", what, quote(name), entry.error().message)};
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

// In order of offset the tensors fill the data exactly: no holes, no overlap, nothing after the last.
Status check_layout(std::vector<Entry>& entries, uint64_t data_bytes, std::string_view what) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      return corrupt(what, "tensor {} begins at data byte {}, must begin at {} ({})", quote(entry.name),
                     entry.begin, expected,
                     entry.begin < expected ? "overlaps another tensor" : "leaves a hole");
    }
    expected = entry.end;
  }
  if (expected == data_bytes) return {};
  return corrupt(what, "has {} bytes of tensor data, its header describes {}{}", data_bytes, expected,
                 data_bytes < expected ? " (download incomplete?)" : "");
}

// Convolutions over time have more dimensions than a view: the last ones are taken as one.
std::vector<int64_t> view_shape(const Entry& entry) {
  constexpr size_t kMost = std::tuple_size_v<decltype(TensorView::shape)>;
  std::vector<int64_t> shape(entry.shape.begin(), entry.shape.end());
  const std::optional<DType> type = entry.type->dtype;
  const bool is_float = type == DType::F32 || type == DType::F16 || type == DType::BF16;
  while (is_float && shape.size() > kMost) {
    const int64_t last = shape.back();
    shape.pop_back();
    shape.back() *= last;
  }
  return shape;
}

void add_tensor(TensorStore& store, const Entry& entry, const char* data) {
  const std::vector<int64_t> shape = view_shape(entry);
  void* begin = const_cast<char*>(data + entry.begin);
  std::string unsupported;
  if (!entry.type->dtype) unsupported = entry.type->name;
  if (shape.size() > std::tuple_size_v<decltype(TensorView::shape)>) {
    unsupported = fmt::format("{} of rank {}", entry.type->name, entry.shape.size());
  }
  const TensorView view =
      unsupported.empty()
          ? TensorView::contiguous(begin, *entry.type->dtype, shape)
          : TensorView::contiguous(begin, DType::U8, {static_cast<int64_t>(entry.end - entry.begin)});
  store.add(std::string(entry.name), view, std::move(unsupported));
}

}  // namespace

Result<Safetensors> parse_safetensors(std::string_view file, std::string_view what) {
  const Result<std::string_view> text = header_text(file, what);
  if (!text.ok()) return text.error();
  const Result<json::value> header =
      parse_json(*text, fmt::format("{}: header", what), {.depth = kJsonDepth, .bytes = kMaxHeaderBytes});
  if (!header.ok()) return header.error();
  const json::object& fields = header->get_object();

  Safetensors result;
  if (const json::value* metadata = fields.if_contains("__metadata__")) {
    Result<std::map<std::string, std::string>> read = read_metadata(*metadata, what);
    if (!read.ok()) return read.error();
    result.metadata = std::move(*read);
  }
  Result<std::vector<Entry>> entries = read_entries(fields, what);
  if (!entries.ok()) return entries.error();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const std::string_view data = file.substr(kPrefixBytes + header_bytes);
  if (Status layout = check_layout(*entries, data.size(), what); !layout.ok()) return layout.error();
  for (const Entry& entry : *entries) add_tensor(result.tensors, entry, data.data());
  return result;
}

}  // namespace sluice::formats
