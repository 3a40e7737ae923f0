// The format of a model's answers, found by its chat template: the template writes calls with known names and
// arguments, and the format is the one whose parser reads exactly these back; where none does, its marks are what stands
// around the names and arguments.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/formats/output_format.h"

namespace sluice::chat {

struct TemplateFormat {
  OutputFormat output;
  bool shows_tools = false;  // the template writes the tools of a request into the prompt
  bool shows_calls = false;  // ... and the calls of earlier turns
};

// Never fails: a template that writes no calls and hints at none has no format of calls.
TemplateFormat derive_format(const ChatTemplate& chat_template);

// Whether a prompt that ends so has opened the reasoning.
bool opens_reasoning(std::string_view prompt, const ReasoningFormat& format);

}  // namespace sluice::chat
