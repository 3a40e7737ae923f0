#include "compress/rewriting.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "chat/chat_prompt.h"
#include "compress/engine_calls.h"

namespace sluice::compress {

namespace {

constexpr int kInstructionRoom = 256;  // tokens for the words around a text
constexpr int kLeastSummary = 32, kLeastFacts = 256;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

Result<std::vector<Token>> make_prompt(const Model& model, const std::string& words, Interrupt* interrupt) {
  if (model.chat_template == nullptr)
    return model.tokenizer->encode(words + "\n\n", {.add_special = true, .interrupt = interrupt});
  json::array messages;
  messages.push_back({{"role", "user"}, {"content", words}});
  Result<chat::Rendering> rendering = chat::render_chat(
      *model.chat_template, *model.tokenizer,
      {.variables = {{"messages", std::move(messages)}}, .request_variables = {}, .interrupt = interrupt});
  if (!rendering) return rendering.error();
  return chat::encode_rendering(*model.tokenizer, *rendering, {.interrupt = interrupt});
}

// The question behind these words, where there is one.
std::string needed_for(const Task& task, std::string_view words) {
  return task.options.question.empty() ? std::string() : std::string(words) + task.options.question;
}

// The text without its question.
std::string_view body_of(const Text& text) {
  return text.question.size() == 0 ? text.text : text.text.substr(0, text.question.begin);
}

// What the model wrote, the marked spans that are not in it, and the question.
std::string assemble(const Text& text, std::string written) {
  for (const ByteRange& range : text.marked) {
    const std::string_view span = text.text.substr(range.begin, range.size());
    if (written.find(span) != std::string::npos) continue;
    written += '\n';
    written += span;
  }
  if (text.question.size() == 0) return written;
  const std::string_view question = text.text.substr(text.question.begin, text.question.size());
  if (!question.starts_with('\n')) written += '\n';
  written += question;
  return written;
}

// Parts of at most so many tokens, cut between sentences.
Result<std::vector<std::string_view>> parts_of(const Model& model, std::string_view text, int most,
                                               Interrupt* interrupt) {
  Result<std::vector<tokenizer::TokenRange>> tokens =
      model.tokenizer->encode_with_ranges(text, {.interrupt = interrupt});
  if (!tokens) return tokens.error();
  const TextUnits units = split_text(text);
  std::vector<std::string_view> parts;
  size_t begin = 0, token = 0;
  while (begin < text.size()) {
    const size_t last = token + static_cast<size_t>(most);
    size_t end = last < tokens->size() ? (*tokens)[last].begin : text.size();
    if (end < text.size()) {
      for (const Sentence& sentence : units.sentences) {
        const size_t at = units.words[sentence.first].bytes.begin;
        if (at > begin && at <= (*tokens)[last].begin) end = at;
      }
    }
    if (end <= begin) end = text.size();
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
    while (token < tokens->size() && (*tokens)[token].begin < begin) ++token;
  }
  return parts;
}

Error no_room(const Model& model) {
  return {ErrorCode::LimitExceeded,
          fmt::format("the context of {} tokens has no room for a text and its summary", model.context)};
}

}  // namespace

Result<std::string> summarize(const Model& model, const Task& task, const Text& text, int budget) {
  const int room = model.context - kInstructionRoom;
  if (room < 2 * kLeastSummary) return no_room(model);
  Result<std::vector<std::string_view>> parts =
      parts_of(model, body_of(text), room / 2, task.caller.interrupt);
  if (!parts) return parts.error();
  const int each = std::clamp(budget / std::max(1, static_cast<int>(parts->size())), kLeastSummary, room / 2);
  std::string written;
  for (const std::string_view part : *parts) {
    const std::string words = fmt::format(
        "Summarize the following text in at most {} words. Keep names, numbers and dates exactly. Write the "
        "summary alone.{}\n\n{}",
        std::max(16, each * 2 / 3), needed_for(task, " Keep what is needed to answer: "), trimmed(part));
    Result<std::vector<Token>> prompt = make_prompt(model, words, task.caller.interrupt);
    if (!prompt) return prompt.error();
    if (static_cast<int>(prompt->size()) + each > model.context) return no_room(model);
    Result<Written> summary = write(model, {.prompt = std::move(*prompt), .max_tokens = each}, task.caller);
    if (!summary) return summary.error();
    if (!written.empty()) written += '\n';
    written += trimmed(summary->text);
  }
  return assemble(text, std::move(written));
}

Result<std::string> extract(const Model& model, const Task& task, const Text& text, int budget) {
  const std::string words = fmt::format(
      "Extract the facts from the following text as JSON that fits this schema: {}{}\n\n{}",
      task.options.schema, needed_for(task, "\nStart with the facts that answer: "), trimmed(body_of(text)));
  Result<std::vector<Token>> prompt = make_prompt(model, words, task.caller.interrupt);
  if (!prompt) return prompt.error();
  const int most = std::max(kLeastFacts, budget);
  const int room = model.context - static_cast<int>(prompt->size());
  if (room < kLeastFacts)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a text of {} tokens leaves {} of the context of {} for its facts; they need {}",
                             prompt->size(), std::max(0, room), model.context, kLeastFacts)};
  Result<Written> facts =
      write(model,
            {.prompt = std::move(*prompt),
             .max_tokens = std::min(most, room),
             .constraint = request::Constraint{.body = request::JsonSchema{.schema = task.options.schema}}},
            task.caller);
  if (!facts) return facts.error();
  if (!facts->ended)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the facts do not end within {} tokens; a schema with bounds (maxItems, "
                             "maxLength) or a larger 'max_tokens' lets them",
                             std::min(most, room))};
  return assemble(text, std::string(trimmed(facts->text)));
}

}  // namespace sluice::compress
