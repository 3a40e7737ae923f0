#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::api {

// RFC 4648, with padding.
std::string to_base64(std::string_view bytes);
// Padding may be missing; nothing where the text is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace sluice::api
