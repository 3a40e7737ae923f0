// A conversation to tokens: the chat template and the tokenizer together. What a user wrote never becomes a control
// token.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace sluice::chat {

struct ChatPrompt {
  json::object variables;          // "messages" and whatever else the template reads
  json::object request_variables;  // the same, but their strings count as user input; they win
  // The rendering ends with the text of the last message, which an answer then continues.
  bool continue_final_message = false;
  Interrupt* interrupt = nullptr;  // may stop the rendering; null: nothing does
};

// add_generation_prompt (true), bos_token and eos_token are set where missing. Errors: the template's own, and a last
// message that is not found in the rendering.
Result<Rendering> render_chat(const ChatTemplate& chat_template, const tokenizer::Tokenizer& tokenizer,
                              ChatPrompt prompt);

struct RenderingEncoding {
  bool add_special = false;        // a template writes the tokens around a text itself
  Interrupt* interrupt = nullptr;  // may stop the encoding; null: nothing does
};
Result<std::vector<Token>> encode_rendering(const tokenizer::Tokenizer& tokenizer, const Rendering& rendering,
                                            RenderingEncoding options = {});

// The control tokens that the template writes behind the content of a message, ascending: what ends one. Empty where it
// writes none or refuses a plain conversation.
std::vector<Token> message_end_tokens(const ChatTemplate& chat_template,
                                      const tokenizer::Tokenizer& tokenizer);

}  // namespace sluice::chat
