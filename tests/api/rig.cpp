#include "tests/api/rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "api/core/generation.h"

namespace sluice::api {

engine::Delta delta(std::string_view text, int choice) {
  engine::Delta out{.choice = choice, .text = std::string(text)};
  for (const char c : text) {
    const auto token = static_cast<Token>(static_cast<unsigned char>(c));
    out.tokens.push_back({.token = token, .logprob = -0.5F, .top = {{token, -0.5F}, {'z', -2.0F}}});
  }
  return out;
}

engine::ChoiceEnd choice_end(engine::FinishReason reason, int choice) {
  return {.choice = choice, .reason = reason};
}

engine::Finished finished(int prompt, int cached, int generated) {
  return {.usage = {.prompt_tokens = prompt, .cached_tokens = cached, .generated_tokens = generated}};
}

engine::Finished failed(ErrorCode code, std::string message) {
  return {.reason = engine::FinishReason::Error, .error = Error{code, std::move(message)}};
}

namespace {

// As the engine does where the gate of a request fails: it ends before its first token.
const ApiError* gate_refusal(const EngineJob& job) {
  const std::shared_ptr<const request::Gate>& gate = job.submissions.front().request.gate;
  if (gate == nullptr) return nullptr;
  const auto settled = std::make_shared<std::promise<void>>();
  gate->when_settled([settled] { settled->set_value(); });
  settled->get_future().wait();
  if (gate->state() != request::Gate::State::Failed) return nullptr;
  std::string out;
  job.writer->take(0, failed(gate->error().code, gate->error().message), out);
  return job.writer->error();
}

}  // namespace

Rig::Rig()
    : tokenizer_(make_byte_tokenizer()),
      template_(*chat::ChatTemplate::parse(chatml())),
      grammars_(std::make_shared<const grammar::Vocabulary>(tokenizer_, 259, std::vector<Token>{258})) {
  models.push_back({.id = "tiny",
                    .aliases = {"tiny-alias"},
                    .created = 1690000000,
                    .tokenizer = &tokenizer_,
                    .chat_template = &template_,
                    .context = 200,
                    .max_sequences = 16,
                    .vocab = 259,
                    .parameters = 1000,
                    .bytes = 4000,
                    .architecture = "llama",
                    .quantization = "F32",
                    .grammars = &grammars_,
                    .compressor = &compressor_,
                    .planner = &planner_});
}

Reply Rig::call(std::string_view method, std::string_view path, std::string_view body,
                std::string_view rest) {
  for (const Operation& operation : operations()) {
    if (operation.method != method || operation.path != path) continue;
    const Call call{.operation = &operation,
                    .rest = rest,
                    .body = body,
                    .models = models,
                    .any_model_name = any_model_name,
                    .context = context};
    return operation.run(call);
  }
  ADD_FAILURE() << "no operation " << method << " " << path;
  return ApiError{};
}

std::string Rig::answer(std::string_view path, std::string_view body, const Events& events) {
  Reply reply = post(path, body);
  if (const auto* error = std::get_if<ApiError>(&reply)) return "error: " + error->message;
  if (const auto* whole = std::get_if<Answer>(&reply)) return whole->body;
  EngineJob& prepared = std::get<EngineJob>(reply);
  std::string out;
  for (const auto& [index, event] : events) prepared.writer->take(index, event, out);
  while (prepared.writer->has_more()) prepared.writer->next_piece(out);
  if (const ApiError* error = prepared.writer->error())
    return fmt::format("error: {} {} {}", error->status, error->code, error->message);
  EXPECT_TRUE(prepared.writer->done());
  return out;
}

engine::Submission Rig::submission(std::string_view path, std::string_view body) {
  Reply reply = post(path, body);
  if (const auto* error = std::get_if<ApiError>(&reply)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  EngineJob& prepared = std::get<EngineJob>(reply);
  EXPECT_EQ(prepared.submissions.size(), 1u);
  settle_first(prepared);
  return std::move(prepared.submissions.front());
}

std::string Rig::refusal(std::string_view path, std::string_view body) {
  const Reply reply = post(path, body);
  const auto* error = std::get_if<ApiError>(&reply);
  const auto* job = std::get_if<EngineJob>(&reply);
  if (job != nullptr && !job->submissions.empty()) error = gate_refusal(*job);
  if (error == nullptr) return "accepted";
  return fmt::format("{} {} {}: {}", error->status, error->code, error->param.empty() ? "-" : error->param,
                     error->message);
}

std::string Rig::shown(const std::vector<Token>& tokens) const {
  std::string out;
  for (const Token token : tokens)
    out += token >= 256 ? fmt::format("{{{}}}", tokenizer_.spelling(token)) : tokenizer_.decode({&token, 1});
  return out;
}

}  // namespace sluice::api
