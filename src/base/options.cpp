#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace sluice {

namespace {

struct DefaultText {
  std::string operator()(const bool* value) const { return *value ? "on" : "off"; }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const std::vector<std::string>* value) const {
    return fmt::format("{}", fmt::join(*value, ","));
  }
  template <class Number>
  std::string operator()(const std::optional<Number>* value) const {
    return *value ? fmt::format("{}", **value) : "";
  }
  std::string operator()(const Choice& choice) const { return choice.names[choice.get()]; }
  template <class Number>
  std::string operator()(const Number* value) const {
    return fmt::format("{}", *value);
  }
};

struct SetValue {
  const Option& option;
  std::string_view text;

  Status operator()(bool* target) const {
    if (text != "on" && text != "off") return wrong("on or off");
    *target = text == "on";
    return {};
  }
  Status operator()(std::string* target) const {
    *target = text;
    return {};
  }
  Status operator()(std::vector<std::string>* target) const {
    *target = text.empty() ? std::vector<std::string>() : std::vector<std::string>{std::string(text)};
    return {};
  }
  Status operator()(const Choice& choice) const {
    for (size_t i = 0; i < choice.names.size(); ++i) {
      if (choice.names[i] != text) continue;
      choice.set(i);
      return {};
    }
    return wrong(fmt::format("one of {}", fmt::join(choice.names, ", ")));
  }
  template <class Number>
  Status operator()(std::optional<Number>* target) const {
    Number value{};
    Status status = (*this)(&value);
    if (status) *target = value;
    return status;
  }
  template <class Number>
  Status operator()(Number* target) const {
    double value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      return wrong("a number");
    // Doubles are exact up to 2^53, far beyond any setting.
    if (std::is_integral_v<Number> && (value != std::floor(value) || std::abs(value) > 0x1p53))
      return wrong("a whole number");
    if (std::is_integral_v<Number> && (value < static_cast<double>(std::numeric_limits<Number>::min()) ||
                                       value > static_cast<double>(std::numeric_limits<Number>::max())))
      return wrong(fmt::format("a whole number of {} bits", 8 * sizeof(Number)));
    if (option.least < option.most && (value < option.least || value > option.most))
      return wrong(fmt::format("{} to {}", option.least, option.most));
    *target = static_cast<Number>(value);
    return {};
  }
  Status wrong(std::string_view wanted) const {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is '{}', must be {}", option.name, text, wanted)};
  }
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

Error unknown_option(const OptionSet& set, const std::string& name) {
  std::vector<std::string> known;
  for (const Option& option : set.options()) known.push_back(option.name);
  const std::string near = nearest_word(name, known);
  return {ErrorCode::InvalidArgument,
          near.empty() ? fmt::format("unknown option '{}'; known are: {}", name, fmt::join(known, ", "))
                       : fmt::format("unknown option '{}', did you mean '{}'?", name, near)};
}

}  // namespace

std::string Option::environment() const {
  std::string text = "SLUICE_" + name;
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Option::default_text() const {
  return std::visit(DefaultText(), target);
}

Option& Option::short_name(char value) {
  letter = value;
  return *this;
}

Option& Option::also(std::string_view value) {
  aliases.emplace_back(value);
  return *this;
}

Option& Option::shown_as(std::string_view value) {
  placeholder = value;
  return *this;
}

Option& Option::within(double low, double high) {
  least = low;
  most = high;
  return *this;
}

Option& Option::at_position(bool needed) {
  positional = true;
  required = needed;
  return *this;
}

Option& OptionSet::push(std::string_view name, Option::Target target, std::string_view help) {
  return options_.emplace_back(
      Option{.name = std::string(name), .target = std::move(target), .help = std::string(help)});
}

template <class T>
Option& OptionSet::add(T& target, std::string_view name, std::string_view help) {
  return push(name, &target, help);
}
template Option& OptionSet::add(bool&, std::string_view, std::string_view);
template Option& OptionSet::add(int&, std::string_view, std::string_view);
template Option& OptionSet::add(int64_t&, std::string_view, std::string_view);
template Option& OptionSet::add(uint64_t&, std::string_view, std::string_view);
template Option& OptionSet::add(double&, std::string_view, std::string_view);
template Option& OptionSet::add(float&, std::string_view, std::string_view);
template Option& OptionSet::add(std::string&, std::string_view, std::string_view);
template Option& OptionSet::add(std::vector<std::string>&, std::string_view, std::string_view);
template Option& OptionSet::add(std::optional<int>&, std::string_view, std::string_view);
template Option& OptionSet::add(std::optional<double>&, std::string_view, std::string_view);

const Option* OptionSet::find(std::string_view name) const {
  for (const Option& option : options_) {
    const auto& others = option.aliases;
    if (option.name == name || std::find(others.begin(), others.end(), name) != others.end()) return &option;
  }
  return nullptr;
}

Status set_value(const Option& option, std::string_view text) {
  return std::visit(SetValue{option, text}, option.target);
}

Status set_values(const OptionSet& set, std::span<const std::string> settings) {
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos)
      return Error{ErrorCode::InvalidArgument, fmt::format("option '{}' is not NAME=VALUE", setting)};
    std::string name = setting.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string_view value = std::string_view(setting).substr(equals + 1);
    const Option* option = set.find(name);
    if (option == nullptr) return unknown_option(set, name);
    if (auto* const* list = std::get_if<std::vector<std::string>*>(&option->target)) {
      (*list)->emplace_back(value);
    } else if (Status status = set_value(*option, value); !status) {
      return status;
    }
  }
  return {};
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace sluice
