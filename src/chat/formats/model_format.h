// What the API must know of a model's answers, found once per model.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/formats/output_pieces.h"
#include "chat/formats/template_format.h"
#include "tokenizer/tokenizer.h"

namespace sluice::chat {

struct ModelFormat {
  OutputFormat output;
  bool shows_tools = false, shows_calls = false;  // as of TemplateFormat
  std::vector<Token> mark_tokens;                 // control tokens that marks consist of, ascending

  bool reasons() const;
};

// `tool_format` names a format that is used instead of the template's; empty: none. The error names one that is not
// known, with those that are.
Result<ModelFormat> make_model_format(const ChatTemplate& chat_template,
                                      const tokenizer::Tokenizer& tokenizer,
                                      std::string_view tool_format = {});

// Control tokens that are marks of some format, ascending: those of the table, and the template's own.
std::vector<Token> all_mark_tokens(const ChatTemplate* chat_template, const tokenizer::Tokenizer& tokenizer);

// Calls as the model would write them.
std::string write_calls(const ToolFormat& format, const std::vector<ToolCall>& calls);

// For templates that leave out what they do not know. Tools become part of the system message, calls part of the
// assistant's text, results words of the user.
struct ToolText {
  bool tools = false, calls = false;  // what the template does not write itself
};
json::array with_tool_text(json::array messages, const json::array& tools, const ToolFormat& format,
                           ToolText what);

}  // namespace sluice::chat
