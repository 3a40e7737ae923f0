#include <fmt/format.h>

#include <algorithm>

#include "jinja/filters/filters.h"
#include "jinja/values/operators.h"
#include "jinja/values/strings.h"

namespace sluice::jinja {

namespace {

Value filter_length(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "length", {});
  if (input.is_string()) runtime.budget().step_bytes(input.text().size());
  const std::optional<int64_t> length = length_of(input);
  if (!length) raise(fmt::format("object of type '{}' has no len()", type_name(input)));
  return Value(*length);
}

Value filter_first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "first", {});
  auto* iterator = input.is_object() ? dynamic_cast<Iterator*>(&input.object()) : nullptr;
  if (iterator != nullptr) {
    std::optional<Value> first = iterator->take_one();
    return first ? *first : runtime.heap().undefined("no first item, sequence was empty");
  }
  if (input.is_string()) {
    const std::optional<Value> first = index_sequence(runtime, input, 0);
    return first ? *first : runtime.heap().undefined("no first item, sequence was empty");
  }
  std::vector<Value> items = items_of(runtime.heap(), input);
  return items.empty() ? runtime.heap().undefined("no first item, sequence was empty") : items.front();
}

Value filter_last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "last", {});
  if (input.is_object()) raise(fmt::format("'{}' object is not reversible", type_name(input)));
  std::vector<Value> items = items_of(runtime.heap(), input);
  return items.empty() ? runtime.heap().undefined("no last item, sequence was empty") : items.back();
}

Value filter_list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "list", {});
  return runtime.heap().list(items_of(runtime.heap(), input));
}

Value filter_join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"d", "attribute"});
  const Value separator = runtime.str(bound.get(0, runtime.heap().string("")));
  std::vector<Value> items = items_of(runtime.heap(), input);
  const Value path = bound.get(1, Value());
  if (!path.is_none()) {
    for (Value& item : items) item = follow_path(runtime, item, path);
  }
  return join(runtime, separator.text(), items);
}

Value filter_reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "reverse", {});
  if (input.is_string()) return slice(runtime, input, {std::nullopt, std::nullopt, -1});
  std::vector<Value> items = items_of(runtime.heap(), input);
  std::reverse(items.begin(), items.end());
  if (input.is_object() || input.is_undefined()) return runtime.heap().list(std::move(items));
  return runtime.iterator("list_reverseiterator", std::move(items));
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Value> sorted(Runtime& runtime, std::vector<Keyed> items, bool reverse) {
  // Equal keys need no order: two undefined ones are equal.
  const auto order_of = [&](const Value& a, const Value& b) {
    return equals(a, b, runtime.budget()) ? 0 : compare(a, b, runtime.budget());
  };
  // Kinds that do not compare fail before anything is moved.
  for (size_t i = 1; i < items.size(); ++i) order_of(items[0].key, items[i].key);
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    const int order = order_of(a.key, b.key);
    return reverse ? order > 0 : order < 0;
  });
  std::vector<Value> out;
  for (Keyed& keyed : items) out.push_back(std::move(keyed.item));
  return out;
}

Value sort_key(Runtime& runtime, const Value& item, const Value& path, bool case_sensitive) {
  const auto key_of = [&](const Value& one_path) {
    Value key = follow_path(runtime, item, one_path);
    return case_sensitive ? key : ignore_case(runtime, key);
  };
  if (!path.is_string() || path.bytes().find(',') == std::string::npos) return key_of(path);
  std::vector<Value> keys;
  const Text comma(",");
  for (const ByteRange& range : split(runtime, path.text(), &comma, -1))
    keys.push_back(key_of(cut(runtime, path.text(), range)));
  return runtime.heap().list(std::move(keys));
}

Value filter_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> items;
  for (Value& item : items_of(runtime.heap(), input)) {
    Value key = sort_key(runtime, item, bound.get(2, Value()), bound.flag(1, false));
    items.push_back({std::move(key), std::move(item)});
  }
  return runtime.heap().list(sorted(runtime, std::move(items), bound.flag(0, false)));
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  require_defined(input);
  if (!input.is_map()) raise(fmt::format("dictsort needs a mapping, not '{}'", type_name(input)));
  const std::string by = bound.find(1) == nullptr ? "key" : bound.text(1).bytes();
  if (by != "key" && by != "value") raise("dictsort can only sort by \"key\" or \"value\"");
  std::vector<Keyed> items;
  for (const Map::Entry& entry : input.map().entries) {
    const Value& key = by == "key" ? entry.key : entry.value;
    items.push_back({bound.flag(0, false) ? key : ignore_case(runtime, key),
                     runtime.heap().tuple({entry.key, entry.value})});
  }
  return runtime.heap().list(sorted(runtime, std::move(items), bound.flag(2, false)));
}

Value filter_items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  if (input.is_undefined()) return runtime.iterator("generator", {});
  if (!input.is_map()) raise("can only get item pairs from a mapping");
  return runtime.iterator("generator", runtime.call_method(input, "items", {}).list().items);
}

// The groups come in the order of their keys; each is (key, items).
Value filter_groupby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "groupby", {"attribute", "default", "case_sensitive"});
  const Value* fallback = bound.find(1);
  const bool case_sensitive = bound.flag(2, false);
  std::vector<Keyed> keyed;
  for (Value& item : items_of(runtime.heap(), input)) {
    const Value real = follow_path(runtime, item, bound.at(0), fallback);
    const Value key = case_sensitive ? real : ignore_case(runtime, real);
    keyed.push_back({key, runtime.heap().tuple({key, real, std::move(item)})});
  }
  std::vector<Value> groups;
  std::vector<Value> members;
  const std::vector<Value> ordered = sorted(runtime, std::move(keyed), false);
  for (size_t i = 0; i < ordered.size(); ++i) {
    const std::vector<Value>& row = ordered[i].list().items;
    members.push_back(row[2]);
    const bool ends =
        i + 1 == ordered.size() || !equals(ordered[i + 1].list().items[0], row[0], runtime.budget());
    if (!ends) continue;
    const Value first_key = follow_path(runtime, members[0], bound.at(0), fallback);
    groups.push_back(
        runtime.heap().list({first_key, runtime.heap().list(std::move(members))}, ListKind::Group));
    members = {};
  }
  return runtime.heap().list(std::move(groups));
}

Value filter_unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Map::Entry> seen;  // key to position of its first item
  const std::vector<Value> items = items_of(runtime.heap(), input);
  for (size_t i = items.size(); i > 0; --i) {
    const Value real = follow_path(runtime, items[i - 1], bound.get(1, Value()));
    seen.push_back(
        {bound.flag(0, false) ? real : ignore_case(runtime, real), Value(static_cast<int64_t>(i - 1))});
  }
  // A repeated key takes its last value: going backwards, that is the first position.
  const Value firsts = runtime.heap().map(std::move(seen));
  std::vector<int64_t> positions;
  for (const Map::Entry& entry : firsts.map().entries) positions.push_back(entry.value.integer());
  std::sort(positions.begin(), positions.end());
  std::vector<Value> kept;
  for (const int64_t position : positions) kept.push_back(items[static_cast<size_t>(position)]);
  return runtime.iterator("generator", std::move(kept));
}

Value filter_batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "batch", {"linecount", "fill_with"});
  const int64_t count = require_integer(bound.at(0), "linecount of batch");
  const Value fill = bound.get(1, Value());
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : items_of(runtime.heap(), input)) {
    if (static_cast<int64_t>(batch.size()) == count)
      batches.push_back(runtime.heap().list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (!fill.is_none() && count > static_cast<int64_t>(batch.size())) {
      runtime.budget().require(static_cast<size_t>(std::min<int64_t>(count, int64_t{1} << 40)) *
                               sizeof(Value));
      batch.resize(static_cast<size_t>(count), fill);
    }
    batches.push_back(runtime.heap().list(std::move(batch)));
  }
  return runtime.iterator("generator", std::move(batches));
}

Value filter_slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "slice", {"slices", "fill_with"});
  const int64_t count = require_integer(bound.at(0), "slices of slice");
  if (count <= 0) raise("slices of slice must be positive");
  const auto slices = static_cast<size_t>(count);
  if (slices > runtime.budget().limits().range_items)
    raise_limit("slices", runtime.budget().limits().range_items);
  const std::vector<Value> items = items_of(runtime.heap(), input);
  const size_t each = items.size() / slices;
  const size_t longer = items.size() % slices;
  const Value fill = bound.get(1, Value());
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t i = 0; i < slices; ++i) {
    const size_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!fill.is_none() && i >= longer) part.push_back(fill);
    out.push_back(runtime.heap().list(std::move(part)));
    begin = end;
  }
  return runtime.iterator("generator", std::move(out));
}

Value filter_sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sum", {"attribute", "start"});
  Value total = bound.get(1, Value(int64_t{0}));
  if (total.is_string()) raise("sum() cannot add strings");
  for (const Value& item : items_of(runtime.heap(), input)) {
    total = arithmetic_add(runtime, total, follow_path(runtime, item, bound.get(0, Value())));
  }
  return total;
}

template <int wanted>
Value filter_extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "min/max", {"case_sensitive", "attribute"});
  std::optional<Keyed> best;
  for (Value& item : items_of(runtime.heap(), input)) {
    Value key = sort_key(runtime, item, bound.get(1, Value()), bound.flag(0, false));
    if (!best || compare(key, best->key, runtime.budget()) * wanted > 0)
      best = Keyed{std::move(key), std::move(item)};
  }
  return best ? best->item : runtime.heap().undefined("no aggregated item, sequence was empty");
}

constexpr NamedCall kSequenceFilters[] = {
    {"length", filter_length},   {"count", filter_length},    {"first", filter_first},
    {"last", filter_last},       {"list", filter_list},       {"join", filter_join},
    {"reverse", filter_reverse}, {"sort", filter_sort},       {"dictsort", filter_dictsort},
    {"items", filter_items},     {"groupby", filter_groupby}, {"unique", filter_unique},
    {"batch", filter_batch},     {"slice", filter_slice},     {"sum", filter_sum},
    {"min", filter_extreme<-1>}, {"max", filter_extreme<1>},
};

}  // namespace

std::span<const NamedCall> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace sluice::jinja
