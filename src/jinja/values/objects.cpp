#include "jinja/values/objects.h"

#include <fmt/format.h>

namespace sluice::jinja {

namespace {

Cycler& cycler_of(const Value& self) {
  return static_cast<Cycler&>(self.object());
}

Value cycler_next(Runtime&, const Value& self, const Arguments&) {
  return cycler_of(self).next();
}

Value cycler_reset(Runtime&, const Value& self, const Arguments&) {
  cycler_of(self).reset();
  return Value();
}

constexpr NamedCall kNext = {"next", cycler_next};
constexpr NamedCall kReset = {"reset", cycler_reset};

}  // namespace

std::optional<Value> Namespace::attribute(Runtime&, std::string_view name) {
  for (const auto& [known, value] : attributes_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(Runtime& runtime, std::string_view name, Value value) {
  for (auto& [known, held] : attributes_) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  runtime.budget().charge(name.size() + sizeof(attributes_[0]));
  runtime.budget().step(attributes_.size() / 16);
  attributes_.emplace_back(name, std::move(value));
}

std::optional<Text> Namespace::print(Runtime& runtime, size_t depth) {
  TextBuilder out(runtime.budget());
  out.add("<Namespace {");
  for (size_t i = 0; i < attributes_.size(); ++i) {
    out.add(fmt::format("{}'{}': ", i > 0 ? ", " : "", attributes_[i].first));
    print_repr(runtime, attributes_[i].second, out, depth);
  }
  out.add("}>");
  return out.take();
}

std::optional<Value> Cycler::attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return current();
  if (name == "next") return Value(runtime.heap().object<BoundMethod>(Value(this), kNext));
  if (name == "reset") return Value(runtime.heap().object<BoundMethod>(Value(this), kReset));
  return std::nullopt;
}

Value Cycler::next() {
  Value item = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return item;
}

Value Joiner::call(Runtime& runtime, const Arguments&) {
  if (!std::exchange(used_, true)) return runtime.heap().string("");
  return separator_;
}

}  // namespace sluice::jinja
