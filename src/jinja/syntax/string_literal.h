// Escapes of string literals.
#pragma once

#include <string>
#include <string_view>

namespace sluice::jinja {

// Decodes what stands between the quotes: the escapes of a Python literal; unknown ones stay as written.
std::string decode_string_literal(std::string_view body);

}  // namespace sluice::jinja
