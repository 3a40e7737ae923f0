#include "grammar/schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/system/thread_turn.h"
#include "grammar/schema/schema_indexer.h"

namespace sluice::grammar {

Result<std::shared_ptr<const SchemaDocument>> SchemaDocument::parse(std::string_view text) {
  ShortTurns turns;
  Result<json::value> root =
      parse_json(text, "the schema",
                 {.depth = SchemaLimits::kDepth, .bytes = SchemaLimits::kBytes, .interrupt = &turns});
  if (!root) return root.error();
  return make(std::move(*root));
}

Result<std::shared_ptr<const SchemaDocument>> SchemaDocument::make(json::value root) {
  std::shared_ptr<SchemaDocument> document(new SchemaDocument(std::move(root)));
  if (Status done = SchemaIndexer(*document).run(); !done) return done.error();
  return std::shared_ptr<const SchemaDocument>(std::move(document));
}

const json::value* SchemaDocument::target(const json::object& schema) const {
  const auto found = targets_.find(&schema);
  return found == targets_.end() ? nullptr : found->second;
}

const Regex& SchemaDocument::regex(std::string_view source) const {
  const auto found = patterns_.find(std::string(source));
  SLUICE_CHECK(found != patterns_.end());
  return found->second;
}

namespace {

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

// Finds the places of values, or of the objects in them, until all are found.
class PathFinder {
 public:
  explicit PathFinder(std::span<const void* const> wanted) : paths_(wanted.size(), "#") {
    for (size_t i = 0; i < wanted.size(); ++i) wanted_[wanted[i]].push_back(i);
  }

  std::vector<std::string> take() && { return std::move(paths_); }

  // Returns whether all are found.
  bool walk(const json::value& from) {
    if (note(&from) || (from.is_object() && note(&from.get_object()))) return true;
    const size_t before = path_.size();
    if (const json::object* object = from.if_object()) {
      for (const auto& member : *object) {
        path_ += '/' + escaped(member.key());
        if (walk(member.value())) return true;
        path_.resize(before);
      }
    } else if (const json::array* array = from.if_array()) {
      for (size_t i = 0; i < array->size(); ++i) {
        path_ += fmt::format("/{}", i);
        if (walk((*array)[i])) return true;
        path_.resize(before);
      }
    }
    return false;
  }

 private:
  bool note(const void* at) {
    const auto found = wanted_.find(at);
    if (found == wanted_.end()) return false;
    for (const size_t index : found->second) paths_[index] = path_;
    wanted_.erase(found);
    return wanted_.empty();
  }

  std::unordered_map<const void*, std::vector<size_t>> wanted_;
  std::vector<std::string> paths_;
  std::string path_ = "#";
};

}  // namespace

int SchemaDocument::references_to(const json::value& schema) const {
  const auto found = references_.find(&schema);
  return found == references_.end() ? 0 : found->second;
}

std::vector<std::string> SchemaDocument::paths_of(std::span<const void* const> schemas) const {
  PathFinder finder(schemas);
  if (!schemas.empty()) finder.walk(root_);
  return std::move(finder).take();
}

std::string SchemaDocument::path_of(const void* schema) const {
  return paths_of({&schema, 1}).front();
}

double number_of(const json::value& value) {
  if (const auto* number = value.if_int64()) return static_cast<double>(*number);
  if (const auto* number = value.if_uint64()) return static_cast<double>(*number);
  return value.get_double();
}

bool is_whole(const json::value& value) {
  if (value.is_int64() || value.is_uint64()) return true;
  return value.is_double() && value.get_double() == std::floor(value.get_double());
}

int64_t count_of(const json::value& value) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (const auto* number = value.if_int64()) return *number;
  if (value.is_uint64()) return kMost;
  const double number = value.get_double();
  return number >= 9e18 ? kMost : static_cast<int64_t>(number);
}

bool is_less(const json::value& a, const json::value& b) {
  if (a.is_double() || b.is_double()) return number_of(a) < number_of(b);
  // Whole numbers, of which those beyond int64 are above all others.
  if (a.is_uint64() || b.is_uint64())
    return a.is_uint64() ? b.is_uint64() && a.get_uint64() < b.get_uint64() : true;
  return a.get_int64() < b.get_int64();
}

bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    const bool both_integers = !a.is_double() && !b.is_double();
    return both_integers ? a == b : number_of(a) == number_of(b);
  }
  if (a.kind() != b.kind()) return false;
  if (const json::array* one = a.if_array()) {
    const json::array& other = b.get_array();
    if (one->size() != other.size()) return false;
    for (size_t i = 0; i < one->size(); ++i) {
      if (!same_value((*one)[i], other[i])) return false;
    }
    return true;
  }
  if (const json::object* one = a.if_object()) {
    const json::object& other = b.get_object();
    if (one->size() != other.size()) return false;
    for (const auto& member : *one) {
      const json::value* found = other.if_contains(member.key());
      if (found == nullptr || !same_value(member.value(), *found)) return false;
    }
    return true;
  }
  return a == b;
}

size_t hash_of(const json::value& value) {
  constexpr size_t kFactor = 0x9E3779B97F4A7C15;
  if (value.is_number()) return std::hash<double>()(number_of(value));
  if (value.is_string()) return std::hash<std::string_view>()(value.get_string());
  size_t hash = static_cast<size_t>(value.kind()) + 1;
  if (const json::array* array = value.if_array()) {
    for (const json::value& one : *array) hash = (hash ^ hash_of(one)) * kFactor;
  } else if (const json::object* object = value.if_object()) {
    for (const auto& member : *object)
      hash += (std::hash<std::string_view>()(member.key()) ^ (hash_of(member.value()) * kFactor)) * kFactor;
  } else if (const bool* flag = value.if_bool()) {
    hash += *flag ? kFactor : 0;
  }
  return hash;
}

bool has_type(const json::value& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "integer") return value.is_number() && is_whole(value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return value.is_object();
}

bool is_multiple(const json::value& value, const json::value& of) {
  if (value.is_int64() && of.is_int64()) return value.get_int64() % of.get_int64() == 0;
  if (is_whole(of)) return std::fmod(number_of(value), number_of(of)) == 0;
  const double quotient = number_of(value) / number_of(of);
  if (std::isinf(quotient)) return std::fmod(number_of(value), number_of(of)) == 0;
  // Neither 0.3 nor 0.1 are what they are written as: the quotient of multiples is whole up to rounding.
  return std::abs(quotient - std::round(quotient)) <= 1e-14 * std::max(1.0, std::abs(quotient)) &&
         (std::round(quotient) != 0 || number_of(value) == 0);
}

}  // namespace sluice::grammar
