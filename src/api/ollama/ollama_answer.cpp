#include "api/ollama/ollama_answer.h"

#include <fmt/format.h>

#include <ctime>

#include "api/openai/embeddings.h"

namespace sluice::api {

namespace {

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

json::object line(const AnswerSetup& setup, OllamaForm form, const std::string& text) {
  json::object out{{"model", setup.model->id},
                   {"created_at", to_rfc3339(wall_time(setup.clock, setup.created))}};
  if (form == OllamaForm::Chat) {
    out["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    out["response"] = text;
  }
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
  json::object out = line(setup(), form_, choice.text);
  add_logprobs(setup(), choice.tokens, out);
  add_ollama_end(choice.end, {usage(), timings()}, out);
  return write_json(out);
}

void OllamaStream::on_delta(size_t, const engine::Delta& delta, std::string& out) {
  if (delta.text.empty() && !(setup().wants_logprobs() && !delta.tokens.empty())) return;
  json::object piece = line(setup(), form_, delta.text);
  add_logprobs(setup(), delta.tokens, piece);
  piece["done"] = false;
  write_json(piece, out);
  out += '\n';
}

void OllamaStream::on_choice_end(size_t, const engine::ChoiceEnd& end, std::string&) {
  end_ = end;
}

void OllamaStream::on_complete(std::string& out) {
  json::object last = line(setup(), form_, "");
  add_ollama_end(end_, {usage(), timings()}, last);
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
