#include "formats/quote.h"

#include <fmt/format.h>

#include "base/system/terminal.h"

namespace sluice::formats {

std::string quote(std::string_view text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return "'" + escape_controls(text) + "'";
  return fmt::format("'{}'… ({} bytes)", escape_controls(text.substr(0, kShown)), text.size());
}

std::string quote_path(std::string_view path) {
  return escape_controls(path);
}

Error about_file(std::string_view path, Error error) {
  const std::string name = quote_path(path);
  if (error.message.find(name) == std::string::npos) error.message = name + ": " + error.message;
  return error;
}

bool is_plain_name(std::string_view text) {
  while (!text.empty()) {
    const size_t length = printable_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace sluice::formats
