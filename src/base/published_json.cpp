#include "base/published_json.h"

#include <string>

namespace sluice {

namespace {

constexpr std::string_view kConstants[] = {"-Infinity", "Infinity", "NaN"};

// Of the text that begins here; empty: none.
std::string_view constant_at(std::string_view text) {
  for (const std::string_view constant : kConstants)
    if (text.starts_with(constant)) return constant;
  return {};
}

std::string with_objects_for_constants(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view constant = quoted ? std::string_view() : constant_at(text.substr(i));
    if (!constant.empty()) {
      out += "{\"__float__\": \"";
      out += constant;
      out += "\"}";
      i += constant.size();
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    const size_t count = quoted && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    out += text.substr(i, count);
    i += count;
  }
  return out;
}

}  // namespace

Result<json::value> parse_published_json(std::string_view text, std::string_view what) {
  for (const std::string_view constant : kConstants)
    if (text.find(constant) != text.npos) return parse_json(with_objects_for_constants(text), what);
  return parse_json(text, what);
}

}  // namespace sluice
