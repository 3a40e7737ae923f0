#include "api/prompt/compression.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/core/errors.h"
#include "api/prompt/messages.h"
#include "compress/compressor.h"

namespace sluice::api {

namespace {

// Where a text of the task comes from.
struct Place {
  size_t number = 0;  // of the message, or of the prompt
  bool asks = true;   // somebody's words, not the result of a tool or an earlier answer
};

struct Gathered {
  std::vector<std::string> texts;  // owned here: messages change
  std::vector<Place> places;
};

Problem gather(const ParsedRequest& parsed, Gathered& out) {
  if (parsed.prompts.size() > 1)
    return invalid_value("compress",
                         fmt::format("'compress' takes one prompt; 'prompt' has {}", parsed.prompts.size()));
  for (size_t i = 0; i < parsed.prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&parsed.prompts[i]);
    if (text == nullptr)
      return invalid_value("compress", "'compress' makes texts shorter; 'prompt' holds token ids");
    out.texts.push_back(*text);
    out.places.push_back({i});
  }
  const json::array& messages = parsed.chat.messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    const json::object& message = messages[i].get_object();
    const json::value* content = message.if_contains("content");
    if (content == nullptr || !content->is_string() || content->get_string().empty()) continue;
    if (text_of(message, "role") == "system" && !parsed.compress->system) continue;
    // An answer that is to be continued is not changed.
    if (text_of(message, "role") == "assistant" && i + 1 == messages.size()) continue;
    out.texts.emplace_back(content->get_string());
    out.places.push_back({i, text_of(message, "role") == "user"});
  }
  return std::nullopt;
}

// The byte at which a character begins; nothing beyond the end of the text.
std::optional<size_t> byte_of(std::string_view text, int64_t character) {
  int64_t at = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (at++ == character) return i;
  }
  return at == character ? std::optional(text.size()) : std::nullopt;
}

Problem mark_text(const KeepSpan& span, const std::string& where, const Gathered& gathered,
                  std::vector<compress::Text>& texts) {
  bool found = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = gathered.texts[i];
    for (size_t at = text.find(span.text); at != std::string_view::npos;
         at = text.find(span.text, at + span.text.size())) {
      texts[i].marked.push_back({at, at + span.text.size()});
      found = true;
    }
  }
  if (found) return std::nullopt;
  return invalid_value("compress.keep", fmt::format("'{}' is '{}', which is in no text that is made shorter",
                                                    where, clipped(span.text)));
}

Problem mark_range(const KeepSpan& span, const std::string& where, const Gathered& gathered,
                   std::vector<compress::Text>& texts) {
  const auto wanted =
      static_cast<size_t>(span.message.value_or(static_cast<int64_t>(gathered.places.back().number)));
  const auto place = std::find_if(gathered.places.begin(), gathered.places.end(),
                                  [&](const Place& p) { return p.number == wanted; });
  if (place == gathered.places.end())
    return invalid_value(
        "compress.keep",
        fmt::format("'{}.message' is {}, which is no message that is made shorter", where, wanted));
  const auto index = static_cast<size_t>(place - gathered.places.begin());
  const std::string_view text = gathered.texts[index];
  const std::optional<size_t> begin = byte_of(text, span.begin), end = byte_of(text, span.end);
  if (!begin || !end)
    return invalid_value("compress.keep",
                         fmt::format("'{}' ends at {}; the text has {} characters", where, span.end,
                                     std::count_if(text.begin(), text.end(), [](char c) {
                                       return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
                                     })));
  texts[index].marked.push_back({*begin, *end});
  return std::nullopt;
}

Problem mark_spans(const ParsedRequest& parsed, const Gathered& gathered,
                   std::vector<compress::Text>& texts) {
  const std::vector<KeepSpan>& spans = parsed.compress->keep;
  for (size_t i = 0; i < spans.size(); ++i) {
    const std::string where = fmt::format("compress.keep[{}]", i);
    Problem problem = spans[i].text.empty() ? mark_range(spans[i], where, gathered, texts)
                                            : mark_text(spans[i], where, gathered, texts);
    if (problem) return problem;
  }
  return std::nullopt;
}

// What the texts are read for: the last words of a user where they are short, else how they end.
void find_question(const Gathered& gathered, compress::Task& task) {
  constexpr size_t kShort = 400;  // bytes
  for (size_t i = task.texts.size(); i-- > 0;) {
    if (!gathered.places[i].asks) continue;
    compress::Text& last = task.texts[i];
    const bool is_short = last.text.size() <= kShort && task.texts.size() > 1;
    last.question = is_short ? compress::ByteRange{0, last.text.size()} : compress::question_of(last.text);
    if (task.options.question.empty())
      task.options.question = std::string(last.text.substr(last.question.begin, last.question.size()));
    return;
  }
}

void put_back(const Gathered& gathered, std::vector<std::string> texts, ParsedRequest& parsed) {
  const size_t prompts = parsed.prompts.size();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i < prompts) {
      parsed.prompts[gathered.places[i].number] = std::move(texts[i]);
    } else {
      parsed.chat.messages[gathered.places[i].number].get_object()["content"] = texts[i];
    }
  }
}

Problem compress_error(const Error& error) {
  ApiError problem = to_api_error(error);
  if (problem.param.empty() && problem.status == 400) problem.param = "compress";
  if (error.code == ErrorCode::LimitExceeded) problem.code = "invalid_value";
  return problem;
}

// The texts of the request, their marks and their question. The views are into `gathered`.
Problem make_task(const Call& call, const ParsedRequest& parsed, Gathered& gathered, compress::Task& task) {
  if (Problem problem = gather(parsed, gathered)) return problem;
  task = {.options = parsed.compress->options,
          .texts = {},
          .caller = {.client = call.context.client,
                     .priority = -parsed.priority,
                     .cache_salt = call.context.cache_salt + '\x1f' + parsed.cache_salt,
                     .interrupt = call.interrupt}};
  for (const std::string& text : gathered.texts) task.texts.push_back({.text = text});
  if (gathered.texts.empty()) return std::nullopt;
  if (Problem problem = mark_spans(parsed, gathered, task.texts)) return problem;
  find_question(gathered, task);
  return std::nullopt;
}

// Of what both kinds of results have.
template <class Made>
void note_result(const Made& made, CompressionReport& out) {
  out.original_tokens = made.original_tokens;
  out.kept_tokens = made.kept_tokens;
  out.cached = made.cached;
  out.seconds = made.seconds;
}

Problem no_compressor() {
  return unsupported_parameter("compress", "'compress' is not supported where no engine runs");
}

}  // namespace

Problem compress_request(const Call& call, const ServedModel& model, AnswerSetup& setup) {
  ParsedRequest& parsed = setup.parsed;
  if (!parsed.compress || parsed.compress->options.mode == compress::Mode::Prefill) return std::nullopt;
  if (model.compressor == nullptr) return no_compressor();
  Gathered gathered;
  compress::Task task;
  CompressionReport& out = setup.compression.emplace();
  out.mode = parsed.compress->options.mode;
  if (Problem problem = make_task(call, parsed, gathered, task)) return problem;
  if (gathered.texts.empty()) return std::nullopt;
  Result<compress::Compressed> made = model.compressor->compress(task);
  if (!made) return compress_error(made.error());
  note_result(*made, out);
  if (parsed.compress->return_text) out.texts = made->texts;
  put_back(gathered, std::move(made->texts), parsed);
  return std::nullopt;
}

Problem prefill_request(const Call& call, const ServedModel& model, AnswerSetup& setup) {
  if (!setup.parsed.compress || setup.parsed.compress->options.mode != compress::Mode::Prefill)
    return std::nullopt;
  if (model.compressor == nullptr) return no_compressor();
  if (!setup.parsed.chat.pictures.empty())
    return invalid_value("compress", "'compress.mode' is \"prefill\", which takes no images");
  Gathered gathered;
  compress::Task task;
  CompressionReport& out = setup.compression.emplace();
  out.mode = compress::Mode::Prefill;
  if (Problem problem = make_task(call, setup.parsed, gathered, task)) return problem;
  if (gathered.texts.empty()) return std::nullopt;
  std::vector<Token>& prompt = setup.prompts.front();
  Result<compress::KeptTokens> made = model.compressor->keep_tokens(task, prompt);
  if (!made) return compress_error(made.error());
  note_result(*made, out);
  if (setup.parsed.compress->return_text) out.texts = {std::move(made->text)};
  if (made->kept.size() == prompt.size()) return std::nullopt;
  for (size_t i = 0; i < made->kept.size(); ++i) prompt[i] = prompt[static_cast<size_t>(made->kept[i])];
  prompt.resize(made->kept.size());
  setup.positions = std::move(made->kept);
  return std::nullopt;
}

json::object with_compression(const AnswerSetup& setup, json::object out) {
  if (!setup.compression) return out;
  const CompressionReport& report = *setup.compression;
  json::object made{{"mode", json::string(compress::name(report.mode))},
                    {"original_tokens", report.original_tokens},
                    {"kept_tokens", report.kept_tokens},
                    {"cached", report.cached},
                    {"seconds", report.seconds}};
  if (setup.parsed.compress && setup.parsed.compress->return_text) {
    json::array texts;
    for (const std::string& text : report.texts) texts.push_back(json::string(text));
    made["texts"] = std::move(texts);
  }
  out["compression"] = std::move(made);
  return out;
}

}  // namespace sluice::api
