// The key-value pairs of a GGUF file: u64 key length, key, u32 type, value.
#include <limits>
#include <type_traits>

#include "formats/gguf/gguf_input.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{16} << 20;  // of all arrays together
constexpr uint32_t kMinAlignment = 8;
constexpr uint32_t kMaxAlignment = 65'536;
constexpr const char* kAlignmentKey = "general.alignment";
constexpr auto kInt64Max = uint64_t{std::numeric_limits<int64_t>::max()};

enum class ValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
constexpr uint32_t kValueTypes = 13;

// Bytes that a value of the type takes at least.
constexpr uint64_t smallest(ValueType type) {
  constexpr uint64_t kBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

template <class T>
GgufValue to_value(T number) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(number);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    if (number > kInt64Max) return number;
  }
  return static_cast<int64_t>(number);
}

class PairReader {
 public:
  explicit PairReader(GgufInput& input) : input_(input), in_(input.in) {}

  Status read_pair(GgufPairs& pairs, uint64_t index);

 private:
  Result<std::string_view> read_key(uint64_t index);
  Result<ValueType> read_type(std::string_view field, std::string_view key);
  Result<GgufValue> read_value(std::string_view key, ValueType type);
  Result<GgufValue> read_bool(std::string_view key);
  Result<std::string_view> read_string(std::string_view key);
  Result<GgufValue> read_array(std::string_view key);
  Result<uint64_t> read_length(std::string_view key, ValueType element);
  template <class T>
  Result<GgufValue> read_numbers(std::string_view key, uint64_t count);
  Result<GgufValue> read_bools(std::string_view key, uint64_t count);
  Result<GgufValue> read_strings(std::string_view key, uint64_t count);
  Status check_alignment(ValueType type, const GgufValue& value) const;

  GgufInput& input_;
  Cursor& in_;
  uint64_t array_elements_ = 0;
};

Status PairReader::read_pair(GgufPairs& pairs, uint64_t index) {
  const Result<std::string_view> key = read_key(index);
  if (!key.ok()) return key.error();
  if (pairs.metadata.contains(*key))
    return input_.corrupt("key {} is there twice, must be unique", quote(*key));
  const Result<ValueType> type = read_type("type", *key);
  if (!type.ok()) return type.error();
  Result<GgufValue> value = read_value(*key, *type);
  if (!value.ok()) return value.error();
  if (*key == kAlignmentKey) {
    if (Status valid = check_alignment(*type, *value); !valid.ok()) return valid;
    pairs.alignment = static_cast<uint32_t>(std::get<int64_t>(*value));
  }
  pairs.metadata.set(std::string(*key), std::move(*value));
  return {};
}

Result<std::string_view> PairReader::read_key(uint64_t index) {
  const auto bytes = in_.read<uint64_t>();
  if (in_.failed()) return input_.truncated(fmt::format("length of key {}", index));
  if (bytes == 0 || bytes > kMaxKeyBytes) {
    return input_.corrupt("key {} has {} bytes, must have 1 to {}", index, bytes, kMaxKeyBytes);
  }
  const std::string_view key = in_.take(bytes);
  if (in_.failed()) return input_.truncated(fmt::format("key {}", index));
  if (!is_plain_name(key)) {
    return input_.corrupt("key {} is {}, must be UTF-8 without control characters", index, quote(key));
  }
  return key;
}

Result<ValueType> PairReader::read_type(std::string_view field, std::string_view key) {
  const auto type = in_.read<uint32_t>();
  if (in_.failed()) return input_.truncated(fmt::format("{} of key {}", field, quote(key)));
  if (type >= kValueTypes) {
    return input_.corrupt("{} of key {} is {}, must be 0 to {}", field, quote(key), type, kValueTypes - 1);
  }
  return static_cast<ValueType>(type);
}

Result<GgufValue> PairReader::read_value(std::string_view key, ValueType type) {
  if (in_.remaining() < smallest(type)) {
    in_.take(smallest(type));
    return input_.truncated(fmt::format("value of key {}", quote(key)));
  }
  switch (type) {
    case ValueType::U8:
      return to_value(in_.read<uint8_t>());
    case ValueType::I8:
      return to_value(in_.read<int8_t>());
    case ValueType::U16:
      return to_value(in_.read<uint16_t>());
    case ValueType::I16:
      return to_value(in_.read<int16_t>());
    case ValueType::U32:
      return to_value(in_.read<uint32_t>());
    case ValueType::I32:
      return to_value(in_.read<int32_t>());
    case ValueType::U64:
      return to_value(in_.read<uint64_t>());
    case ValueType::I64:
      return to_value(in_.read<int64_t>());
    case ValueType::F32:
      return to_value(in_.read<float>());
    case ValueType::F64:
      return to_value(in_.read<double>());
    case ValueType::Bool:
      return read_bool(key);
    case ValueType::Array:
      return read_array(key);
    case ValueType::String:
      break;
  }
  const Result<std::string_view> text = read_string(key);
  if (!text.ok()) return text.error();
  return GgufValue(*text);
}

Result<GgufValue> PairReader::read_bool(std::string_view key) {
  const auto truth = in_.read<uint8_t>();
  if (truth > 1) return input_.corrupt("value of key {} is {}, a bool must be 0 or 1", quote(key), truth);
  return GgufValue(truth == 1);
}

Result<std::string_view> PairReader::read_string(std::string_view key) {
  const auto bytes = in_.read<uint64_t>();
  if (!in_.failed() && bytes > kMaxStringBytes) {
    return input_.corrupt("a string of key {} has {} bytes, limit {}", quote(key), bytes, kMaxStringBytes);
  }
  const std::string_view text = in_.take(bytes);
  if (in_.failed()) return input_.truncated(fmt::format("a string of key {}", quote(key)));
  return text;
}

// An array is u32 element type, u64 length, elements.
Result<GgufValue> PairReader::read_array(std::string_view key) {
  const Result<ValueType> element = read_type("element type", key);
  if (!element.ok()) return element.error();
  const Result<uint64_t> length = read_length(key, *element);
  if (!length.ok()) return length.error();
  switch (*element) {
    case ValueType::U8:
      return read_numbers<uint8_t>(key, *length);
    case ValueType::I8:
      return read_numbers<int8_t>(key, *length);
    case ValueType::U16:
      return read_numbers<uint16_t>(key, *length);
    case ValueType::I16:
      return read_numbers<int16_t>(key, *length);
    case ValueType::U32:
      return read_numbers<uint32_t>(key, *length);
    case ValueType::I32:
      return read_numbers<int32_t>(key, *length);
    case ValueType::U64:
      return read_numbers<uint64_t>(key, *length);
    case ValueType::I64:
      return read_numbers<int64_t>(key, *length);
    case ValueType::F32:
      return read_numbers<float>(key, *length);
    case ValueType::F64:
      return read_numbers<double>(key, *length);
    case ValueType::Bool:
      return read_bools(key, *length);
    case ValueType::String:
      return read_strings(key, *length);
    case ValueType::Array:
      break;
  }
  return input_.corrupt("key {} is an array of arrays, must not be nested", quote(key));
}

// Elements that the rest of the file can hold, so that memory is asked for in proportion to the file.
Result<uint64_t> PairReader::read_length(std::string_view key, ValueType element) {
  const auto length = in_.read<uint64_t>();
  if (in_.failed()) return input_.truncated(fmt::format("length of key {}", quote(key)));
  const uint64_t fits = in_.remaining() / smallest(element);
  if (length > fits) {
    return input_.corrupt(
        "key {} has {} elements, limit {} in the {} bytes that follow (download incomplete?)", quote(key),
        length, fits, in_.remaining());
  }
  const uint64_t left = kMaxArrayElements - array_elements_;
  if (length > left) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{}: key {} has {} elements, limit {} (of {} for all arrays)", input_.what,
                             quote(key), length, left, kMaxArrayElements)};
  }
  array_elements_ += length;
  return length;
}

// REQUIRES: the bytes of `count` elements remain.
template <class T>
Result<GgufValue> PairReader::read_numbers(std::string_view key, uint64_t count) {
  using Element = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  std::vector<Element> elements(count);
  for (Element& element : elements) {
    const T number = in_.read<T>();
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (number > kInt64Max) {
        return input_.corrupt("key {} has the element {}, limit 2^63 - 1", quote(key), number);
      }
    }
    element = static_cast<Element>(number);
  }
  return GgufValue(GgufArray(std::move(elements)));
}

Result<GgufValue> PairReader::read_bools(std::string_view key, uint64_t count) {
  std::vector<int64_t> elements(count);
  for (int64_t& element : elements) {
    element = in_.read<uint8_t>();
    if (element > 1)
      return input_.corrupt("key {} has the element {}, a bool must be 0 or 1", quote(key), element);
  }
  return GgufValue(GgufArray(std::move(elements)));
}

Result<GgufValue> PairReader::read_strings(std::string_view key, uint64_t count) {
  std::vector<std::string_view> elements(count);
  for (std::string_view& element : elements) {
    const Result<std::string_view> text = read_string(key);
    if (!text.ok()) return text.error();
    element = *text;
  }
  return GgufValue(GgufArray(std::move(elements)));
}

Status PairReader::check_alignment(ValueType type, const GgufValue& value) const {
  if (type != ValueType::U32) {
    return input_.corrupt("type of key '{}' is {}, must be {} (u32)", kAlignmentKey,
                          static_cast<uint32_t>(type), static_cast<uint32_t>(ValueType::U32));
  }
  const int64_t alignment = std::get<int64_t>(value);
  if (alignment < kMinAlignment || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    return input_.corrupt("value of key '{}' is {}, must be a power of two from {} to {}", kAlignmentKey,
                          alignment, kMinAlignment, kMaxAlignment);
  }
  return {};
}

}  // namespace

Result<GgufPairs> read_gguf_pairs(GgufInput& input, uint64_t count) {
  GgufPairs pairs;
  PairReader reader(input);
  for (uint64_t i = 0; i < count; ++i) {
    if (Status pair = reader.read_pair(pairs, i); !pair.ok()) return pair.error();
  }
  return pairs;
}

}  // namespace sluice::formats
