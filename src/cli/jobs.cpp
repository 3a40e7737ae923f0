#include "cli/jobs.h"

#include <fmt/format.h>

#include "api/core/job_line.h"
#include "api/fields/parameters.h"
#include "cli/served_model.h"
#include "engine/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

Result<std::vector<Token>> encode_prompt(api::Prompt& prompt, const llm::Session& session) {
  if (auto* tokens = std::get_if<std::vector<Token>>(&prompt)) return std::move(*tokens);
  if (session.has_tokenizer()) return session.encode_text(std::get<std::string>(prompt));
  return Error{ErrorCode::Unsupported, "a text needs a tokenizer, which this model does not have"};
}

// A conversation, as a server would take it.
Status read_chat(api::ParsedRequest draft, const std::vector<api::ServedModel>& models, Job& job) {
  if (models.empty())
    return Error{ErrorCode::Unsupported, "a conversation needs a tokenizer, which this model does not have"};
  if (!draft.max_tokens) draft.max_tokens = -1;
  Result<PreparedDraft> prepared = prepare_draft(models, std::move(draft));
  if (!prepared) return prepared.error();
  job.submission = std::move(prepared->submission);
  job.reader = {prepared->setup.output, prepared->setup.tools, prepared->setup.start};
  return {};
}

Status read_completion(api::ParsedRequest draft, const llm::Session& session, Job& job) {
  Result<std::vector<Token>> prompt = encode_prompt(draft.prompts.front(), session);
  if (!prompt) return prompt.error();
  const tokenizer::Tokenizer* tokenizer = session.has_tokenizer() ? &session.tokenizer() : nullptr;
  api::fill_defaults(draft, session.defaults());
  Result<api::Parameters> parameters = api::make_parameters(draft, tokenizer);
  if (!parameters) return parameters.error();
  request::Request& request = job.submission.request;
  request.prompt = std::move(*prompt);
  request.task = std::move(parameters->sampling);
  if (const std::optional<request::Constraint>& constraint = request.sampling().constraint) {
    Result<std::shared_ptr<const void>> grammar = session.compile(*constraint);
    if (!grammar) return grammar.error();
    job.submission.kept = std::move(*grammar);
  }
  if (!parameters->has_max_tokens)
    request.sampling().max_tokens = std::max(1, session.room_after(request.prompt.size()));
  request.priority = parameters->priority;
  request.cache_salt = parameters->cache_salt;
  if (tokenizer == nullptr) return {};
  Result<engine::TextMaker> text = engine::make_text_maker(*tokenizer, std::move(parameters->text));
  if (!text) return text.error();
  job.submission.text = text->make;
  job.submission.text_bytes = text->bytes;
  return {};
}

json::value bytes_of(const tokenizer::Tokenizer* tokenizer, Token token) {
  return tokenizer == nullptr ? json::value(nullptr) : json::value(tokenizer->decode({&token, 1}));
}

json::array logprobs_json(const std::vector<request::Sampled>& tokens,
                          const tokenizer::Tokenizer* tokenizer) {
  json::array out;
  for (const request::Sampled& token : tokens) {
    json::array top;
    for (const request::TokenLogprob& other : token.top)
      top.push_back({{"token_id", other.token},
                     {"token", bytes_of(tokenizer, other.token)},
                     {"logprob", other.logprob}});
    out.push_back({{"token_id", token.token},
                   {"token", bytes_of(tokenizer, token.token)},
                   {"logprob", token.logprob},
                   {"top_logprobs", top}});
  }
  return out;
}

}  // namespace

std::string job_id(const json::value& line, size_t number) {
  const json::value* id = line.is_object() ? line.get_object().if_contains("id") : nullptr;
  if (id == nullptr) return std::to_string(number);
  return id->is_string() ? std::string(id->get_string()) : json::serialize(*id);
}

Result<Job> read_job(std::string_view line, size_t number, const llm::Session& session,
                     const std::vector<api::ServedModel>& models) {
  const std::string what = fmt::format("line {}", number);
  Result<json::value> value = parse_json(line, what);
  if (!value) return value.error();
  if (!value->is_object()) return Error{ErrorCode::InvalidArgument, what + ": not an object"};
  const json::object& object = value->get_object();
  Job job;
  job.id = job_id(*value, number);
  const auto problem = [&](const Error& error) {
    return Error{error.code, fmt::format("{}: {}", what, error.message)};
  };
  const Result<std::optional<double>> at = get_number(object, "at");
  if (!at) return problem(at.error());
  job.at = at->value_or(0);
  if (job.at < 0 || job.at > 1e6)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: 'at' is {}; it must be from 0 to 1e6 seconds", what, job.at)};
  const Result<std::optional<std::string>> client = get_string(object, "client");
  if (!client) return problem(client.error());

  Result<api::ParsedRequest> draft = api::read_job_line(object);
  if (!draft) return problem(draft.error());
  const bool is_chat = !draft->chat.messages.empty();
  const Status read =
      is_chat ? read_chat(std::move(*draft), models, job) : read_completion(std::move(*draft), session, job);
  if (!read) return problem(read.error());
  job.submission.request.client = client->value_or("");
  return job;
}

JobResult::Choice& JobResult::choice(int index) {
  if (choices_.size() <= static_cast<size_t>(index)) choices_.resize(static_cast<size_t>(index) + 1);
  return choices_[static_cast<size_t>(index)];
}

void JobResult::take(const engine::Event& event) {
  if (const auto* delta = std::get_if<engine::Delta>(&event)) {
    Choice& target = choice(delta->choice);
    target.text += delta->text;
    target.tokens.insert(target.tokens.end(), delta->tokens.begin(), delta->tokens.end());
    prompt_logprobs_.insert(prompt_logprobs_.end(), delta->prompt_logprobs.begin(),
                            delta->prompt_logprobs.end());
  } else if (const auto* end = std::get_if<engine::ChoiceEnd>(&event)) {
    choice(end->choice).end = *end;
  } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
    end_ = *finished;
    error_ = end_->error;
  }
}

void JobResult::add_text(const Choice& choice, json::object& item) const {
  if (reader_.format == nullptr) {
    item["text"] = choice.text;
    return;
  }
  const chat::ParsedOutput parsed =
      chat::parse_output(*reader_.format, *reader_.tools, reader_.start, choice.text);
  item["text"] = parsed.content;
  if (!parsed.reasoning.empty()) item["reasoning_content"] = parsed.reasoning;
  if (!parsed.calls.empty()) item["tool_calls"] = calls_json(parsed.calls);
}

json::object JobResult::to_json(const tokenizer::Tokenizer* tokenizer) const {
  json::object out{{"id", id_}};
  if (error_) {
    out["error"] = {{"message", error_->message}};
    return out;
  }
  json::array choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json::array ids;
    bool logprobs = false;
    for (const request::Sampled& token : choice.tokens) {
      ids.push_back(token.token);
      logprobs = logprobs || token.logprob != 0 || !token.top.empty();
    }
    json::object item{{"index", i}};
    add_text(choice, item);
    item["token_ids"] = ids;
    item["finish_reason"] = choice.end ? json::string(name(choice.end->reason)) : json::value(nullptr);
    if (choice.end) item["score"] = choice.end->score;
    if (logprobs) item["logprobs"] = logprobs_json(choice.tokens, tokenizer);
    choices.push_back(item);
  }
  out["choices"] = choices;
  if (!prompt_logprobs_.empty()) out["prompt_logprobs"] = logprobs_json(prompt_logprobs_, tokenizer);
  if (!end_) return out;
  out["finish_reason"] = json::string(name(end_->reason));
  out["usage"] = {{"prompt_tokens", end_->usage.prompt_tokens},
                  {"cached_tokens", end_->usage.cached_tokens},
                  {"completion_tokens", end_->usage.generated_tokens}};
  out["timings"] = {{"queue", end_->timings.queue},
                    {"ttft", end_->timings.ttft},
                    {"tpot", end_->timings.tpot},
                    {"latency", end_->timings.latency}};
  return out;
}

}  // namespace sluice::cli
