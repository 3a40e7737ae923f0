// Chat templates: a conversation to the text a model was trained on.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::chat {

// A piece of a rendering. What a user wrote must be tokenized with special tokens off: a typed `<|im_start|>`
// is plain text.
struct TemplateSpan {
  std::string text;
  bool is_user_input = false;
};

struct Rendering {
  std::vector<TemplateSpan> spans;  // neighbours differ in is_user_input, none is empty

  std::string text() const;
};

struct RenderOptions {
  // What strftime_now() tells, as local time; unset is the time of the call.
  std::optional<std::chrono::local_seconds> now;
  // Variables whose strings count as user input, besides messages, tools and documents.
  std::vector<std::string> user_variables;
  Interrupt* interrupt = nullptr;  // may stop the rendering; null: nothing does
};

// A parsed template. Rendering changes nothing in it, so that threads may share one.
class ChatTemplate {
 public:
  // Fails on what is not a template, naming the line.
  static Result<ChatTemplate> parse(std::string source);

  // `variables` are what the template sees: messages, tools, documents, add_generation_prompt, bos_token and
  // so on. Strings inside of messages (but for roles), tools and documents count as user input. A template
  // that raises gives its own words as the error; other errors name the line.
  Result<Rendering> render(const json::object& variables, const RenderOptions& options = {}) const;

  std::string_view source() const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace sluice::chat
