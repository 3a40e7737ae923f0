// Numbers and padding of both format notations: `%` and str.format.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jinja/runtime.h"

namespace sluice::jinja {

// What a conversion asks for; both notations come down to it.
struct FormatSpec {
  char type = 's';
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // + - or space
  bool alternate = false;
  bool group = false;  // thousands with commas
  std::string fill = " ";
  int64_t width = 0;
  std::optional<int64_t> precision;
};

constexpr int64_t kMostDigits = 4096;

// The decimal number at `position`, which moves past it; 0 where there is none.
int64_t read_number(std::string_view bytes, size_t& position);
void pad(TextBuilder& out, const Text& body, const FormatSpec& spec, char default_align);
std::string format_integer(int64_t value, const FormatSpec& spec);
std::string format_number(double value, const FormatSpec& spec);
// The first `precision` code points, or everything.
Text cut_to(const Text& text, std::optional<int64_t> precision);
int64_t to_integer(const Value& value);
double to_number(const Value& value);
Text repr_of(Runtime& runtime, const Value& value);

}  // namespace sluice::jinja
