// Requests to the API and events of an engine that is not there.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/core/service.h"
#include "api/lab/planner.h"
#include "compress/compressor.h"
#include "grammar/grammar_store.h"
#include "tests/api/byte_model.h"

namespace sluice::api {

using Events = std::vector<std::pair<size_t, engine::Event>>;  // submission and event

engine::Delta delta(std::string_view text, int choice = 0);  // with the tokens of the text
engine::ChoiceEnd choice_end(engine::FinishReason reason = engine::FinishReason::Stop, int choice = 0);
engine::Finished finished(int prompt, int cached, int generated);
engine::Finished failed(ErrorCode code, std::string message);

// Leaves texts as they are.
class NoCompressor : public compress::PromptCompressor {
 public:
  Result<compress::Compressed> compress(const compress::Task& task) override {
    compress::Compressed out;
    for (const compress::Text& text : task.texts) out.texts.emplace_back(text.text);
    return out;
  }
};

// Repeats the questions it is asked.
class EchoPlanner : public Planner {
 public:
  Result<json::object> plan(const PlanQuestion& question) const override {
    if (question.device == "abacus") return Error{ErrorCode::InvalidArgument, "unknown device 'abacus'"};
    return json::object{
        {"batch", question.batch}, {"context", question.context}, {"weights", question.weights}};
  }
  Result<json::object> play(const std::vector<RecordedRequest>& requests, Interrupt*) const override {
    double tokens = 0;
    for (const RecordedRequest& one : requests) tokens += one.input + one.output;
    return json::object{{"requests", requests.size()}, {"tokens", tokens}, {"last", requests.back().at}};
  }
};

class Rig {
 public:
  Rig();

  // REQUIRES: there is such a row.
  Reply call(std::string_view method, std::string_view path, std::string_view body,
             std::string_view rest = {});
  Reply post(std::string_view path, std::string_view body) { return call("POST", path, body); }

  // The answer to a request whose events are these; "error: ..." where it is refused, as it is written.
  std::string answer(std::string_view path, std::string_view body, const Events& events);
  // The only submission; an error fails the test and gives an empty one.
  engine::Submission submission(std::string_view path, std::string_view body);
  // "400 code param: message" of a request that is refused; "accepted" otherwise.
  std::string refusal(std::string_view path, std::string_view body);
  // The prompt as text, with control tokens spelled in braces: "{<s>}Hi".
  std::string shown(const std::vector<Token>& tokens) const;

  std::vector<ServedModel> models;
  bool any_model_name = false;
  RequestContext context{.request_id = "r1", .client = "me", .now_s = 1700000000};

 private:
  tokenizer::Tokenizer tokenizer_;
  chat::ChatTemplate template_;
  grammar::GrammarStore grammars_;
  NoCompressor compressor_;
  EchoPlanner planner_;
};

}  // namespace sluice::api
