#include <fmt/format.h>

#include <ctime>

#include "jinja/values/objects.h"

namespace sluice::jinja {

namespace {

Value global_range(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, "range", {"start", "stop", "step"});
  const int64_t first = require_integer(bound.at(0), "argument of range()");
  const int64_t start = bound.find(1) == nullptr ? 0 : first;
  const int64_t stop = bound.find(1) == nullptr ? first : require_integer(bound.at(1), "argument of range()");
  const int64_t step = bound.find(2) == nullptr ? 1 : require_integer(bound.at(2), "argument of range()");
  if (step == 0) raise("range() step must not be zero");
  const size_t limit = runtime.budget().limits().range_items;
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Unsigned, so that no pair of bounds overflows.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > limit) raise_limit("items of range()", limit);
  runtime.budget().require(count * sizeof(Value));
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
  }
  return runtime.heap().list(std::move(items), ListKind::Range);
}

// Entries of dict(mapping, **named) and dict(pairs, **named).
std::vector<Map::Entry> collect_entries(Runtime& runtime, std::string_view callee,
                                        const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    raise(fmt::format("{}() takes at most one positional argument", callee));
  std::vector<Map::Entry> entries;
  if (!arguments.positional.empty() && arguments.positional[0].is_map()) {
    entries = arguments.positional[0].map().entries;
  } else if (!arguments.positional.empty()) {
    for (const Value& item : items_of(runtime.heap(), arguments.positional[0])) {
      const std::vector<Value> pair = items_of(runtime.heap(), item);
      if (pair.size() != 2) raise(fmt::format("{}() needs pairs, got {} values", callee, pair.size()));
      entries.push_back({pair[0], pair[1]});
    }
  }
  for (const auto& [name, value] : arguments.named) entries.push_back({runtime.heap().string(name), value});
  return entries;
}

Value global_dict(Runtime& runtime, const Value&, const Arguments& arguments) {
  return runtime.heap().map(collect_entries(runtime, "dict", arguments));
}

Value global_namespace(Runtime& runtime, const Value&, const Arguments& arguments) {
  auto* space = runtime.heap().object<Namespace>();
  for (const Map::Entry& entry : collect_entries(runtime, "namespace", arguments)) {
    if (!entry.key.is_string()) raise("the names of a namespace must be strings");
    space->set(runtime, entry.key.bytes(), entry.value);
  }
  return Value(space);
}

Value global_cycler(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) raise("cycler() needs at least one item");
  return Value(runtime.heap().object<Cycler>(arguments.positional));
}

Value global_joiner(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, "joiner", {"sep"});
  return Value(runtime.heap().object<Joiner>(bound.get(0, runtime.heap().string(", "))));
}

Value global_raise_exception(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, "raise_exception", {"message"});
  throw TemplateError{ErrorCode::InvalidArgument, runtime.str(bound.at(0)).bytes(), true};
}

Value global_strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(arguments, "strftime_now", {"format"});
  const std::string& format = bound.text(0).bytes();
  if (format.empty()) return runtime.heap().string("");
  constexpr size_t kMostBytes = 4096;
  std::string out(kMostBytes, '\0');
  // The space tells an empty result from one that did not fit.
  const size_t length = std::strftime(out.data(), out.size(), (format + " ").c_str(), &runtime.now());
  if (length == 0) raise_limit("bytes from strftime_now()", kMostBytes);
  return runtime.heap().string(std::string_view(out).substr(0, length - 1));
}

constexpr NamedCall kGlobals[] = {
    {"range", global_range},
    {"dict", global_dict},
    {"namespace", global_namespace},
    {"cycler", global_cycler},
    {"joiner", global_joiner},
    {"raise_exception", global_raise_exception},
    {"strftime_now", global_strftime_now},
};

}  // namespace

const NamedCall* find_global(std::string_view name) {
  for (const NamedCall& function : kGlobals) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace sluice::jinja
