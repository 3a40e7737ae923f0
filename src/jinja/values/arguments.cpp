#include <fmt/format.h>

#include "jinja/runtime.h"

namespace sluice::jinja {

Bound::Bound(const Arguments& arguments, std::string_view callee,
             std::initializer_list<std::string_view> names)
    : callee_(callee) {
  SLUICE_CHECK_LE(names.size(), kMost);
  if (arguments.positional.size() > names.size()) {
    raise(fmt::format("{}() takes at most {} arguments, got {}", callee, names.size(),
                      arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t index = 0;
    while (index < names.size() && names.begin()[index] != name) ++index;
    if (index == names.size()) raise(fmt::format("{}() has no argument '{}'", callee, name.substr(0, 40)));
    if (values_[index] != nullptr) raise(fmt::format("{}() got argument '{}' twice", callee, name));
    values_[index] = &value;
  }
}

const Value& Bound::at(size_t index) const {
  if (values_[index] == nullptr) raise(fmt::format("{}() needs argument {}", callee_, index + 1));
  return *values_[index];
}

bool Bound::flag(size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : is_true(*values_[index]);
}

int64_t Bound::integer(size_t index, int64_t fallback) const {
  if (values_[index] == nullptr || values_[index]->is_none()) return fallback;
  return require_integer(*values_[index], fmt::format("argument {} of {}()", index + 1, callee_));
}

const Text& Bound::text(size_t index) const {
  const Value& value = at(index);
  require_defined(value);
  if (!value.is_string()) {
    raise(
        fmt::format("argument {} of {}() must be a string, not '{}'", index + 1, callee_, type_name(value)));
  }
  return value.text();
}

}  // namespace sluice::jinja
