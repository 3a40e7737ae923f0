#include "jinja/values/loop.h"

#include "jinja/values/objects.h"

namespace sluice::jinja {

namespace {

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) raise("loop.cycle() needs an argument");
  const auto& loop = static_cast<const Loop&>(self.object());
  return arguments.positional[loop.index() % arguments.positional.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value(static_cast<Loop&>(self.object()).changed(runtime, arguments.positional));
}

constexpr NamedCall kCycle = {"cycle", loop_cycle};
constexpr NamedCall kChanged = {"changed", loop_changed};

}  // namespace

std::optional<Value> Loop::attribute(Runtime& runtime, std::string_view name) {
  const std::vector<Value>& items = items_.list().items;
  const auto integer = [](size_t value) { return Value(static_cast<int64_t>(value)); };
  if (name == "index") return integer(index_ + 1);
  if (name == "index0") return integer(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == items.size());
  if (name == "length") return integer(items.size());
  if (name == "revindex") return integer(items.size() - index_);
  if (name == "revindex0") return integer(items.size() - index_ - 1);
  if (name == "depth") return integer(origin_.depth);
  if (name == "depth0") return integer(origin_.depth - 1);
  if (name == "previtem")
    return index_ > 0 ? items[index_ - 1] : runtime.heap().undefined("there is no previous item");
  if (name == "nextitem") {
    return index_ + 1 < items.size() ? items[index_ + 1] : runtime.heap().undefined("there is no next item");
  }
  if (name == "cycle") return Value(runtime.heap().object<BoundMethod>(Value(this), kCycle));
  if (name == "changed") return Value(runtime.heap().object<BoundMethod>(Value(this), kChanged));
  return std::nullopt;
}

Value Loop::call(Runtime&, const Arguments& arguments) {
  if (origin_.statement == nullptr) raise("the loop is called but was not marked 'recursive'");
  const Bound bound(arguments, "loop", {"iterable"});
  return origin_.interpreter->run_loop_again(*origin_.statement, origin_.outer, bound.at(0),
                                             origin_.depth + 1);
}

bool Loop::changed(Runtime& runtime, const std::vector<Value>& values) {
  bool same = last_changed_ && last_changed_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i)
    same = equals((*last_changed_)[i], values[i], runtime.budget());
  if (!same) last_changed_ = values;
  return !same;
}

std::optional<Value> Macro::attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return runtime.heap().string(definition_.name);
  if (name == "catch_kwargs") return Value(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value(definition_.uses_varargs);
  if (name == "caller") return Value(definition_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& parameter : definition_.parameters) names.push_back(runtime.heap().string(parameter.text));
  return runtime.heap().tuple(std::move(names));
}

}  // namespace sluice::jinja
