#include "chat/chat_prompt.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace sluice::chat {

namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The content of the last message, as far as a template keeps it whatever it trims.
std::string final_content(const json::object& variables) {
  const json::value* messages = variables.if_contains("messages");
  const json::array* list = messages == nullptr ? nullptr : messages->if_array();
  const json::object* last = list == nullptr || list->empty() ? nullptr : list->back().if_object();
  const json::value* content = last == nullptr ? nullptr : last->if_contains("content");
  if (content == nullptr || !content->is_string()) return {};
  return std::string(trim(std::string_view(content->get_string().data(), content->get_string().size())));
}

void cut_after(Rendering& rendering, size_t size) {
  for (size_t i = 0; i < rendering.spans.size(); ++i) {
    std::string& text = rendering.spans[i].text;
    if (size <= text.size()) {
      text.resize(size);
      rendering.spans.resize(size == 0 ? i : i + 1);
      return;
    }
    size -= text.size();
  }
}

Status end_with(Rendering& rendering, const std::string& content) {
  const size_t found = rendering.text().rfind(content);
  if (content.empty() || found == std::string::npos)
    return Error{
        ErrorCode::InvalidArgument,
        "the last message cannot be continued: the chat template does not write its content as it is"};
  cut_after(rendering, found + content.size());
  return {};
}

}  // namespace

Result<Rendering> render_chat(const ChatTemplate& chat_template, const tokenizer::Tokenizer& tokenizer,
                              ChatPrompt prompt) {
  const auto spelled = [&](std::optional<Token> token) {
    return json::value(token ? std::string(tokenizer.spelling(*token)) : std::string());
  };
  RenderOptions options;
  options.interrupt = prompt.interrupt;
  for (auto& [key, value] : prompt.request_variables) {
    prompt.variables[key] = std::move(value);
    options.user_variables.emplace_back(key);
  }
  prompt.variables.insert({{"add_generation_prompt", true},
                           {"bos_token", spelled(tokenizer.special().bos)},
                           {"eos_token", spelled(tokenizer.special().eos)}});
  Result<Rendering> rendering = chat_template.render(prompt.variables, options);
  if (!rendering || !prompt.continue_final_message) return rendering;
  if (Status status = end_with(*rendering, final_content(prompt.variables)); !status) return status.error();
  return rendering;
}

Result<std::vector<Token>> encode_rendering(const tokenizer::Tokenizer& tokenizer, const Rendering& rendering,
                                            RenderingEncoding options) {
  std::vector<tokenizer::TextSpan> spans;
  for (const TemplateSpan& span : rendering.spans) spans.push_back({span.text, span.is_user_input});
  return tokenizer.encode(
      spans, {.parse_special = true, .add_special = options.add_special, .interrupt = options.interrupt});
}

std::vector<Token> message_end_tokens(const ChatTemplate& chat_template,
                                      const tokenizer::Tokenizer& tokenizer) {
  const json::array talk{{{"role", "user"}, {"content", "a"}},
                         {{"role", "assistant"}, {"content", "b"}},
                         {{"role", "user"}, {"content", "c"}}};
  ChatPrompt prompt;
  prompt.variables = {{"messages", talk}};
  const Result<Rendering> rendering = render_chat(chat_template, tokenizer, std::move(prompt));
  std::set<Token> ends;
  for (size_t i = 1; rendering && i < rendering->spans.size(); ++i) {
    const TemplateSpan& span = rendering->spans[i];
    if (span.is_user_input) continue;
    const Result<std::vector<Token>> tokens = tokenizer.encode(span.text, {.parse_special = true});
    if (!tokens) continue;
    const auto end = std::find_if(tokens->begin(), tokens->end(),
                                  [&](Token token) { return tokenizer.is_special(token); });
    if (end != tokens->end()) ends.insert(*end);
  }
  return {ends.begin(), ends.end()};
}

}  // namespace sluice::chat
