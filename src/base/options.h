// Options are declared once: name, target, help. Flags, environment, --help, completion and docs come from
// that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace sluice {

// A named value out of a closed set; `set` gets the index into `names`.
struct Choice {
  std::vector<std::string> names;
  std::function<void(size_t)> set;
  std::function<size_t()> get;
};

struct Option {
  // The value that the pointer holds at declaration is the default. A bool is a switch: --name and --no-name.
  // An optional is empty until it is given.
  using Target = std::variant<bool*, int*, int64_t*, uint64_t*, double*, float*, std::string*,
                              std::vector<std::string>*, std::optional<int>*, std::optional<double>*, Choice>;

  std::string name;  // "max-step-tokens"; the environment twin is SLUICE_MAX_STEP_TOKENS
  Target target;
  std::string help;
  char letter = 0;                   // -p
  std::vector<std::string> aliases;  // further names, not in completions
  std::string placeholder;           // what the help shows for the value: "FILE"
  double least = 0, most = 0;        // numbers only; least < most: both ends allowed
  bool positional = false;
  bool required = false;

  std::string environment() const;
  std::string default_text() const;  // empty where there is nothing to say

  Option& short_name(char value);
  Option& also(std::string_view value);
  Option& shown_as(std::string_view value);
  Option& within(double low, double high);
  Option& at_position(bool needed = true);
};

class OptionSet {
 public:
  // Of every type of Option::Target. Not inline: there are hundreds of calls.
  template <class T>
  Option& add(T& target, std::string_view name, std::string_view help);
  template <class E>
  Option& add_choice(E& target, std::string_view name, std::string_view help,
                     std::vector<std::pair<std::string, E>> values) {
    Choice choice;
    std::vector<E> order;
    for (auto& [text, value] : values) {
      choice.names.push_back(text);
      order.push_back(value);
    }
    choice.set = [&target, order](size_t i) { target = order[i]; };
    choice.get = [&target, order] {
      for (size_t i = 0; i < order.size(); ++i)
        if (order[i] == target) return i;
      return size_t{0};
    };
    return push(name, std::move(choice), help);
  }
  const std::deque<Option>& options() const { return options_; }
  // By its name or an alias; null where there is none.
  const Option* find(std::string_view name) const;

 private:
  Option& push(std::string_view name, Option::Target target, std::string_view help);
  std::deque<Option> options_;  // references stay valid
};

// Gives the option's target the value that the text spells; a switch is "on" or "off", and a list holds the text alone, or
// nothing where it is empty. An error names option, text and what would do, and changes nothing.
Status set_value(const Option& option, std::string_view text);
// The same for each "name=value", in order; underscores in names count as dashes, and a list gets one more entry. An
// unknown name is an error with the nearest known one.
Status set_values(const OptionSet& set, std::span<const std::string> settings);

// The known word with the fewest edits, or "" where none is near (more than a third of the letters differ).
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace sluice
