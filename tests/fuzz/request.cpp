// Any bytes as the body of any operation, the first byte choosing which: an error that can be written, or submissions
// that keep to the limits and an answer that is complete and JSON.
#include <cstdlib>

#include "api/core/service.h"
#include "api/lab/planner.h"
#include "compress/compressor.h"
#include "tests/api/byte_model.h"

namespace {

using namespace sluice;
using namespace sluice::api;

constexpr int kContext = 512, kVocab = 259;

void require(bool holds) {
  if (!holds) std::abort();
}

// What is marked or asked lies in its text, and is all that is left of it.
class KeepsMarks : public compress::PromptCompressor {
 public:
  Result<compress::Compressed> compress(const compress::Task& task) override {
    compress::Compressed out;
    for (const compress::Text& text : task.texts) {
      std::string& kept = out.texts.emplace_back();
      std::vector<compress::ByteRange> marked = text.marked;
      marked.push_back(text.question);
      for (const compress::ByteRange& range : marked) {
        require(range.begin <= range.end && range.end <= text.text.size());
        kept += text.text.substr(range.begin, range.size());
      }
      const compress::TextUnits units = compress::split_text(text.text, marked);
      require(units.words.empty() == text.text.empty());
      if (kept.size() > text.text.size()) kept = text.text;
    }
    return out;
  }
};

// Holds what the API promises a planner: whole questions and requests within the limits.
class ChecksQuestions : public Planner {
 public:
  Result<json::object> plan(const PlanQuestion& question) const override {
    require(question.batch >= 0 && question.context >= 0);
    return json::object{{"weights", question.weights}, {"device", question.device}};
  }
  Result<json::object> play(const std::vector<RecordedRequest>& requests, Interrupt*) const override {
    require(!requests.empty() && requests.size() <= size_t{kMostPlayed});
    int64_t tokens = 0;
    for (const RecordedRequest& request : requests) {
      require(request.at >= 0 && request.input >= 1 && request.output >= 1);
      tokens += request.input + request.output;
    }
    require(tokens <= kMostPlayedTokens);
    return json::object{{"tokens", tokens}};
  }
};

const std::vector<ServedModel>& models() {
  static KeepsMarks compressor;
  static const ChecksQuestions planner;
  static const tokenizer::Tokenizer tokenizer = make_byte_tokenizer();
  static const chat::ChatTemplate chat_template = *chat::ChatTemplate::parse(chatml());
  static const std::vector<ServedModel> all = {{.id = "tiny",
                                                .tokenizer = &tokenizer,
                                                .chat_template = &chat_template,
                                                .context = kContext,
                                                .max_sequences = 8,
                                                .vocab = kVocab,
                                                .architecture = "llama",
                                                .compressor = &compressor,
                                                .planner = &planner}};
  return all;
}

void check_error(Dialect dialect, const ApiError& error) {
  require(error.status >= 400 && error.status < 500);
  require(parse_json(write_error(dialect, error, "id"), "error").ok());
}

void check_submission(const engine::Submission& submission) {
  const request::Request& request = submission.request;
  require(!request.prompt.empty() && request.prompt.size() <= kContext);
  for (const Token token : request.prompt) require(token >= 0 && token < kVocab);
  if (request.pooling() != nullptr) return;
  require(request::validate(request.task, kVocab).ok());
  require(request.prompt.size() + static_cast<size_t>(request.sampling().max_tokens) <= kContext);
}

std::vector<engine::Event> invent(const engine::Submission& submission) {
  if (submission.request.pooling() != nullptr)
    return {engine::Embedding{{0.5F, -0.5F, 0.25F}}, engine::Finished{}};
  std::vector<engine::Event> events;
  const request::Sampled token{.token = 200, .logprob = -1, .top = {{65, -0.5F}, {258, -3}}};
  for (int choice = 0; choice < submission.request.sampling().n; ++choice) {
    engine::Delta delta{.choice = choice, .tokens = {token}, .text = "\"\n\xC3\xA9"};
    if (choice == 0 && submission.request.sampling().prompt_logprobs)
      delta.prompt_logprobs.assign(submission.request.prompt.size() - 1, token);
    events.emplace_back(delta);
    events.emplace_back(engine::ChoiceEnd{.choice = choice, .stop_token = 65});
  }
  events.emplace_back(engine::Finished{.usage = {.prompt_tokens = 3, .generated_tokens = 1}});
  return events;
}

void check_answer(EngineJob& prepared) {
  std::string out;
  for (size_t i = 0; i < prepared.submissions.size(); ++i) {
    check_submission(prepared.submissions[i]);
    for (const engine::Event& event : invent(prepared.submissions[i])) prepared.writer->take(i, event, out);
  }
  require(prepared.writer->done() && prepared.writer->error() == nullptr);
  if (!prepared.stream) require(parse_json(out, "answer").ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Operation& operation = operations()[data[0] % operations().size()];
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Call call{.operation = &operation,
                  .rest = body,
                  .body = body,
                  .models = models(),
                  .any_model_name = true,
                  .context = {.request_id = "r", .client = "c", .now_s = 1}};
  Reply reply = operation.run(call);
  if (const auto* error = std::get_if<ApiError>(&reply)) check_error(operation.dialect, *error);
  if (const auto* answer = std::get_if<Answer>(&reply)) require(parse_json(answer->body, "answer").ok());
  if (auto* prepared = std::get_if<EngineJob>(&reply)) check_answer(*prepared);
  return 0;
}
