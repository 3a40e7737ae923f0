// What the tests of templates share: reading data, and comparing a rendering with the expected one.
#pragma once

#include <filesystem>
#include <string>

#include "chat/chat_template.h"

namespace sluice::chat {

std::string read_file(const std::filesystem::path& path);
json::value read_json(const std::filesystem::path& path);

// 2025-07-26 12:30:00, the clock of the reference renderings
RenderOptions reference_clock();

// The variables of a case: its own over those of the context.
json::object variables_of(const json::object& context, const json::object& conversation);

// `expected` has "text", which must match byte for byte, or "error".
void check_rendering(const ChatTemplate& chat_template, const json::object& variables,
                     const json::object& expected);

}  // namespace sluice::chat
