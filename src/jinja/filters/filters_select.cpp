#include "jinja/filters/filters.h"

namespace sluice::jinja {

namespace {

// Arguments from `first` on, for the filter or test that they name.
Arguments rest_of(const Arguments& arguments, size_t first) {
  Arguments rest;
  for (size_t i = first; i < arguments.positional.size(); ++i)
    rest.positional.push_back(arguments.positional[i]);
  rest.named = arguments.named;
  return rest;
}

Value filter_map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!is_true(input)) return runtime.iterator("generator", {});
  const std::vector<Value> items = items_of(runtime.heap(), input);
  if (arguments.positional.empty()) {
    const Bound bound(arguments, "map", {"filter", "attribute", "default"});
    if (bound.find(1) == nullptr) raise("map needs a filter or an attribute");
    for (const Value& item : items) mapped.push_back(follow_path(runtime, item, bound.at(1), bound.find(2)));
    return runtime.iterator("generator", std::move(mapped));
  }
  if (!arguments.positional[0].is_string()) raise("map needs the name of a filter");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items)
    mapped.push_back(runtime.filter(arguments.positional[0].bytes(), item, rest));
  return runtime.iterator("generator", std::move(mapped));
}

template <bool wanted, bool by_attribute>
Value filter_select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  constexpr size_t test_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < test_at) raise("the name of an attribute is missing");
  const bool has_test = arguments.positional.size() > test_at;
  if (has_test && !arguments.positional[test_at].is_string()) raise("a test is named by a string");
  const Arguments rest = rest_of(arguments, test_at + 1);
  std::vector<Value> kept;
  if (!is_true(input)) return runtime.iterator("generator", {});
  for (Value& item : items_of(runtime.heap(), input)) {
    const Value tested = by_attribute ? follow_path(runtime, item, arguments.positional[0]) : item;
    const bool holds =
        has_test ? runtime.test(arguments.positional[test_at].bytes(), tested, rest) : is_true(tested);
    if (holds == wanted) kept.push_back(std::move(item));
  }
  return runtime.iterator("generator", std::move(kept));
}

constexpr NamedCall kSelectFilters[] = {
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
};

}  // namespace

std::span<const NamedCall> select_filters() {
  return kSelectFilters;
}

}  // namespace sluice::jinja
