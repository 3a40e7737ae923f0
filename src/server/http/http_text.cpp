// Characters and words of HTTP.
#include <algorithm>

#include "server/http/http.h"

namespace sluice::server {

namespace {

constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char low = lower(c);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || is_letter(c) || kTokenMarks.find(c) != std::string_view::npos;
  });
}

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > 260) return false;
  std::string_view name = text, port;
  if (text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos || end < 3) return false;
    name = text.substr(1, end - 1);
    port = text.substr(end + 1);
    const auto in_address = [](char c) { return hex_value(c) >= 0 || c == ':' || c == '.'; };
    if (!std::all_of(name.begin(), name.end(), in_address)) return false;
  } else {
    const size_t colon = text.find(':');
    name = text.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
    const auto in_name = [](char c) {
      return is_digit(c) || is_letter(c) || c == '.' || c == '-' || c == '_';
    };
    if (name.empty() || !std::all_of(name.begin(), name.end(), in_name)) return false;
  }
  return port.empty() || (port.front() == ':' && is_port(port.substr(1)));
}

std::optional<std::string> decode_percent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0 || high * 16 + low < 0x20 || high * 16 + low == 0x7F) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string_view RequestHead::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string_view RequestHead::query() const {
  const size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

const std::string* RequestHead::find(std::string_view name) const {
  for (const HeaderField& field : fields)
    if (field.name == name) return &field.value;
  return nullptr;
}

size_t RequestHead::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields.begin(), fields.end(),
                                           [&](const HeaderField& field) { return field.name == name; }));
}

}  // namespace sluice::server
