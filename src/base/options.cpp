#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

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

}  // namespace

std::string Option::environment() const {
  std::string text = "SLUICE_" + name;
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Option::default_text() const {
  return std::visit(DefaultText(), target);
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
