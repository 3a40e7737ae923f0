#include "api/ollama/ollama_answer.h"

#include <fmt/format.h>

#include <ctime>

#include "api/openai/embeddings.h"
#include "api/prompt/compression.h"

namespace sluice::api {

namespace {

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

struct LineText {
  std::string content = {}, thinking = {};
  std::vector<chat::ToolCall> calls = {};
};

json::object line(const AnswerSetup& setup, OllamaForm form, const LineText& text) {
  json::object out{{"model", setup.model->id},
                   {"created_at", to_rfc3339(wall_time(setup.clock, setup.created))}};
  if (form != OllamaForm::Chat) {
    out["response"] = text.content;
    if (!text.thinking.empty()) out["thinking"] = text.thinking;
    return out;
  }
  json::object message{{"role", "assistant"}, {"content", text.content}};
  if (!text.thinking.empty()) message["thinking"] = text.thinking;
  if (!text.calls.empty()) {
    json::array& list = message["tool_calls"].emplace_array();
    for (const chat::ToolCall& call : text.calls) {
      Result<json::value> arguments = parse_json(call.arguments, "arguments");
      list.push_back({{"id", call.id},
                      {"function",
                       {{"name", call.name},
                        {"arguments", arguments && arguments->is_object() ? *arguments : json::object()}}}});
    }
  }
  out["message"] = std::move(message);
  return out;
}

void add_logprobs(const AnswerSetup& setup, const std::vector<request::Sampled>& tokens, json::object& out) {
  if (!setup.wants_logprobs() || tokens.empty()) return;
  json::array list;
  for (const request::Sampled& token : tokens)
    list.push_back(token_logprob(token, {*setup.model->tokenizer}));
  out["logprobs"] = std::move(list);
}

void add_ollama_end(const engine::ChoiceEnd& end, const Totals& totals, json::object& out) {
  const engine::Timings& timings = totals.timings;
  out["done_reason"] = json::string(finish_reason(end.reason));
  out["done"] = true;
  out["total_duration"] = nanoseconds(timings.latency);
  out["load_duration"] = 0;
  out["prompt_eval_count"] = totals.usage.prompt_tokens;
  out["prompt_eval_duration"] = nanoseconds(std::max(0.0, timings.ttft - timings.queue));
  out["eval_count"] = totals.usage.generated_tokens;
  out["eval_duration"] = nanoseconds(std::max(0.0, timings.latency - timings.ttft));
}

}  // namespace

std::string to_rfc3339(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t seconds = whole.count();
  std::tm broken{};
  gmtime_r(&seconds, &broken);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &broken);
  std::string out(text, size);
  if (const int64_t fraction = (time - whole).count(); fraction > 0) {
    out += fmt::format(".{:09}", fraction);
    out.resize(out.find_last_not_of('0') + 1);
  }
  return out + "Z";
}

std::chrono::nanoseconds wall_time(int64_t (*clock)(), int64_t seconds) {
  return clock == nullptr ? std::chrono::seconds(seconds) : std::chrono::nanoseconds(clock());
}

std::string OllamaAnswer::compose() const {
  const Choice& choice = parts().front().choices.front();
  json::object out = line(setup(), form_, {choice.text, choice.reasoning, choice.calls});
  add_logprobs(setup(), choice.tokens, out);
  add_ollama_end(choice.end, {usage(), timings()}, out);
  out = with_compression(setup(), std::move(out));
  return write_json(out);
}

void OllamaStream::append_line(json::object line, const std::vector<request::Sampled>& tokens,
                               std::string& out) const {
  add_logprobs(setup(), tokens, line);
  line["done"] = false;
  write_json(line, out);
  out += '\n';
}

void OllamaStream::on_delta(size_t, const AnswerDelta& delta, std::string& out) {
  LineText text;
  for (const chat::OutputPiece& piece : delta.pieces) {
    if (const auto* content = std::get_if<chat::ContentPiece>(&piece)) text.content += content->text;
    if (const auto* thought = std::get_if<chat::ReasoningPiece>(&piece)) text.thinking += thought->text;
    if (const auto* call = std::get_if<chat::CallPiece>(&piece)) calls_.push_back({call->name, call->id, {}});
    if (const auto* part = std::get_if<chat::ArgumentsPiece>(&piece)) calls_.back().arguments += part->text;
  }
  const bool logprobs = setup().wants_logprobs() && !delta.raw.tokens.empty();
  if (text.content.empty() && text.thinking.empty() && !logprobs) return;
  append_line(line(setup(), form_, text), delta.raw.tokens, out);
}

void OllamaStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string& out) {
  end_ = end;
  if (!calls_.empty()) append_line(line(setup(), form_, {"", "", calls_}), {}, out);
}

void OllamaStream::on_complete(std::string& out) {
  json::object last = line(setup(), form_, {});
  add_ollama_end(end_, {usage(), timings()}, last);
  last = with_compression(setup(), std::move(last));
  write_json(last, out);
  out += '\n';
}

void OllamaStream::on_failure(const ApiError& error, std::string& out) {
  out += write_error(Dialect::Ollama, error, setup().request_id);
  out += '\n';
}

std::string OllamaEmbeddings::compose() const {
  json::array vectors;
  for (const Part& part : parts())
    vectors.push_back(embedding_json(shorten_embedding(part.embedding, parsed())));
  if (form_ == OllamaForm::Embedding) return write_json(json::object{{"embedding", vectors.front()}});
  return write_json(json::object{{"model", setup().model->id},
                                 {"embeddings", std::move(vectors)},
                                 {"total_duration", nanoseconds(timings().latency)},
                                 {"load_duration", 0},
                                 {"prompt_eval_count", usage().prompt_tokens}});
}

}  // namespace sluice::api
