#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "base/keyed_hash.h"

namespace sluice {

namespace {

// The keys of one object, in one block of memory.
class KeySet {
 public:
  // False where the key is there already.
  bool insert(std::string_view key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const uint64_t hash = keyed_hash(key);
    Slot& slot = slots_[probe(key, hash)];
    if (slot.is_used) return false;
    slot = {hash, bytes_.size(), static_cast<uint32_t>(key.size()), true};
    bytes_ += key;
    ++count_;
    return true;
  }
  size_t size() const { return count_; }

 private:
  struct Slot {
    uint64_t hash = 0;
    size_t begin = 0;
    uint32_t size = 0;
    bool is_used = false;
  };

  size_t probe(std::string_view key, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (!slot.is_used) return i;
      if (slot.hash == hash && std::string_view(bytes_).substr(slot.begin, slot.size) == key) return i;
    }
  }

  void grow() {
    std::vector<Slot> old(std::max<size_t>(16, 4 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (!slot.is_used) continue;
      size_t i = slot.hash & (slots_.size() - 1);
      while (slots_[i].is_used) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }

  std::string bytes_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0;
};

constexpr size_t kSliceBytes = size_t{16} << 10;  // parsed between two looks at the interrupt
constexpr std::string_view kSpace = " \t\r\n";

// The start of a text, never part of a character.
std::string clipped(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// Builds a json::value and remembers the keys of every open object, so that a repeated key is an error.
class StrictHandler {
 public:
  static constexpr size_t max_object_size = size_t{1} << 28;
  static constexpr size_t max_array_size = size_t{1} << 28;
  static constexpr size_t max_key_size = size_t{1} << 20;
  static constexpr size_t max_string_size = size_t{1} << 30;

  std::string problem;
  size_t most_keys = max_object_size;
  bool over_limit = false;  // the problem is a limit and not the syntax

  explicit StrictHandler(json::storage_ptr storage) { stack_.reset(std::move(storage)); }

  json::value release() { return stack_.release(); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t n, json::error_code&) {
    keys_.pop_back();
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t n, json::error_code&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& ec) {
    key_.append(part.data(), part.size());
    stack_.push_key(part);
    if (keys_.back().size() == most_keys) {
      problem = fmt::format("an object has more than {} keys, which is the limit", most_keys);
      over_limit = true;
      ec = json::error::object_too_large;
      return false;
    }
    const bool fresh = keys_.back().insert(key_);
    if (!fresh) {
      problem = fmt::format("duplicate key '{}'", clipped(key_, 80));
      ec = json::error::syntax;
    }
    key_.clear();
    return fresh;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view, json::error_code&) {
    stack_.push_int64(value);
    return true;
  }
  bool on_uint64(uint64_t value, json::string_view, json::error_code&) {
    stack_.push_uint64(value);
    return true;
  }
  bool on_double(double value, json::string_view, json::error_code& ec) {
    if (!std::isfinite(value)) {
      problem = "a number that is not finite";
      ec = json::error::exponent_overflow;
      return false;
    }
    stack_.push_double(value);
    return true;
  }
  bool on_bool(bool value, json::error_code&) {
    stack_.push_bool(value);
    return true;
  }
  bool on_null(json::error_code&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  json::value_stack stack_;
  std::vector<KeySet> keys_;
  std::string key_;
};

Error wrong_kind(std::string_view key, const json::value& value, std::string_view wanted) {
  return {ErrorCode::InvalidArgument,
          fmt::format("'{}' is {} {}, must be {}", key, json::to_string(value.kind()),
                      clipped(json::serialize(value), 60), wanted)};
}

// nullptr where the key is missing or null
const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view what, JsonLimits limits,
                               json::storage_ptr storage) {
  if (text.size() > limits.bytes) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{}: {} bytes of JSON, limit {}", what, text.size(), limits.bytes)};
  }
  json::parse_options options;
  options.max_depth = limits.depth;
  json::basic_parser<StrictHandler> parser(options, std::move(storage));
  parser.handler().most_keys = limits.keys;
  json::error_code ec;
  size_t used = 0;
  while (!ec && !parser.done()) {
    const size_t slice = std::min(text.size() - used, kSliceBytes);
    const bool more = used + slice < text.size();
    const size_t taken = parser.write_some(more, text.data() + used, slice, ec);
    used += taken;
    if (!ec && !more && !parser.done()) ec = json::error::incomplete;
    if (limits.interrupt == nullptr || !more) continue;
    if (Status status = limits.interrupt->check(); !status) return status.error();
  }
  if (!ec && text.find_first_not_of(kSpace, used) != std::string_view::npos) ec = json::error::extra_data;
  if (ec) {
    const std::string& problem = parser.handler().problem;
    if (parser.handler().over_limit)
      return Error{ErrorCode::LimitExceeded, fmt::format("{}: {} (byte {})", what, problem, used)};
    return Error{ErrorCode::Corrupt, fmt::format("{}: invalid JSON at byte {}: {}", what, used,
                                                 problem.empty() ? ec.message() : problem)};
  }
  return parser.handler().release();
}

void write_json(const json::value& value, std::string& out) {
  switch (value.kind()) {
    case json::kind::double_:
      out += std::isfinite(value.get_double()) ? fmt::format("{}", value.get_double()) : "null";
      return;
    case json::kind::array: {
      char before = '[';
      for (const json::value& item : value.get_array()) {
        out += before;
        write_json(item, out);
        before = ',';
      }
      out += value.get_array().empty() ? "[]" : "]";
      return;
    }
    case json::kind::object: {
      char before = '{';
      for (const auto& member : value.get_object()) {
        out += before;
        out += json::serialize(member.key());
        out += ':';
        write_json(member.value(), out);
        before = ',';
      }
      out += value.get_object().empty() ? "{}" : "}";
      return;
    }
    default:
      out += json::serialize(value);
  }
}

std::string write_json(const json::value& value) {
  std::string out;
  write_json(value, out);
  return out;
}

Result<std::optional<int64_t>> get_int(const json::object& object, std::string_view key) {
  const json::value* value = find(object, key);
  if (value == nullptr) return std::optional<int64_t>();
  if (value->is_int64()) return std::optional(value->get_int64());
  if (value->is_double()) {
    const double number = value->get_double();
    if (number == std::floor(number) && std::abs(number) < 9e15)
      return std::optional(static_cast<int64_t>(number));
  }
  return wrong_kind(key, *value, "an integer below 2^63");
}

Result<std::optional<double>> get_number(const json::object& object, std::string_view key) {
  const json::value* value = find(object, key);
  if (value == nullptr) return std::optional<double>();
  if (value->is_int64()) return std::optional(static_cast<double>(value->get_int64()));
  if (value->is_uint64()) return std::optional(static_cast<double>(value->get_uint64()));
  if (value->is_double()) return std::optional(value->get_double());
  return wrong_kind(key, *value, "a number");
}

Result<std::optional<bool>> get_bool(const json::object& object, std::string_view key) {
  const json::value* value = find(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_bool()) return std::optional(value->get_bool());
  return wrong_kind(key, *value, "true or false");
}

Result<std::optional<std::string>> get_string(const json::object& object, std::string_view key) {
  const json::value* value = find(object, key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional(std::string(value->get_string()));
  return wrong_kind(key, *value, "a string");
}

}  // namespace sluice
