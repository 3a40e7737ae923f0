#include "api/core/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <span>

#include "api/core/answer_constraint.h"
#include "api/core/errors.h"
#include "api/core/pending_grammar.h"
#include "api/fields/parameters.h"
#include "api/fields/tool_fields.h"
#include "api/openai/models.h"
#include "api/prompt/compression.h"
#include "api/prompt/pictures.h"
#include "chat/chat_prompt.h"

namespace sluice::api {

namespace {

bool is_chat(const ParsedRequest& parsed) {
  return !parsed.chat.messages.empty();
}

// Texts of one request to tokens.
class PromptEncoder {
 public:
  PromptEncoder(const Call& call, const ServedModel& model, const ParsedRequest& parsed, Purpose purpose)
      : call_(call), model_(model), draft_(parsed), purpose_(purpose) {}

  Problem encode_text(const std::string& text, std::vector<Token>& out) const {
    if (Problem problem = check_least(least_tokens(text))) return problem;
    return take("prompt",
                model_.tokenizer->encode(text, {.parse_special = draft_.parse_special,
                                                .add_special = draft_.add_special_tokens.value_or(true),
                                                .interrupt = call_.interrupt}),
                out);
  }

  Problem encode_chat(std::vector<Token>& out) const {
    chat::Rendering rendering;
    if (Problem problem = render_messages(call_, model_, draft_, rendering)) {
      const Problem too_long = check_least(least_of_messages());
      return too_long ? too_long : problem;
    }
    if (!draft_.chat.pictures.empty()) {
      if (Status put =
              engine::insert_pictures(rendering, model_.pictures->style().placeholder, draft_.chat.pictures);
          !put)
        return invalid_value("messages", put.error().message);
    }
    if (Problem problem = check_least(least_of(rendering))) return problem;
    const chat::RenderingEncoding options{.add_special = draft_.add_special_tokens.value_or(false),
                                          .interrupt = call_.interrupt};
    return take("messages", chat::encode_rendering(*model_.tokenizer, rendering, options), out);
  }

 private:
  static Problem take(const char* field, Result<std::vector<Token>> tokens, std::vector<Token>& out) {
    if (!tokens) return invalid_value(field, tokens.error().message);
    out = std::move(*tokens);
    return std::nullopt;
  }

  size_t least_tokens(std::string_view text) const { return model_.tokenizer->least_tokens(text); }

  size_t least_of(const chat::Rendering& rendering) const {
    size_t sum = 0;
    for (const chat::TemplateSpan& span : rendering.spans) sum += least_tokens(span.text);
    return sum;
  }

  // A conversation that a template gave up on may be too long for the model, too: that is the better reason.
  size_t least_of_messages() const {
    size_t sum = 0;
    for (const json::value& message : draft_.chat.messages) {
      const json::value* content = message.get_object().if_contains("content");
      if (content != nullptr && content->is_string()) sum += least_tokens(to_text(*content));
    }
    return sum;
  }

  // Counting tokens takes time, which a text that cannot fit in any case is not worth.
  Problem check_least(size_t least) const {
    const bool must_fit = purpose_ == Purpose::Run && !draft_.truncate_prompt_tokens;
    if (!must_fit || least <= static_cast<size_t>(model_.context)) return std::nullopt;
    return context_overflow(call_.operation->dialect,
                            {.context = model_.context,
                             .prompt = static_cast<int64_t>(least),
                             .completion = std::max(0, draft_.max_tokens.value_or(0)),
                             .counted = false});
  }

  const Call& call_;
  const ServedModel& model_;
  const ParsedRequest& draft_;
  Purpose purpose_;
};

void truncate(const ServedModel& model, const ParsedRequest& parsed, std::vector<Token>& tokens) {
  if (!parsed.truncate_prompt_tokens) return;
  int keep = *parsed.truncate_prompt_tokens;
  if (keep < 0) keep = std::max(1, model.context - std::max(1, parsed.max_tokens.value_or(1)));
  if (tokens.size() <= static_cast<size_t>(keep)) return;
  const auto extra = static_cast<std::ptrdiff_t>(tokens.size()) - keep;
  if (parsed.truncate_right) {
    tokens.resize(static_cast<size_t>(keep));
  } else {
    tokens.erase(tokens.begin(), tokens.begin() + extra);
  }
}

Problem check_tokens(const ServedModel& model, const ParsedRequest& parsed,
                     const std::vector<Token>& tokens) {
  const char* field = is_chat(parsed) ? "messages" : "prompt";
  if (tokens.empty())
    return invalid_value(field, fmt::format("'{}' has no tokens; it must have at least 1", field));
  for (const Token token : tokens) {
    if (token >= 0 && token < model.vocab) continue;
    return invalid_value(
        field, fmt::format("'{}' holds token {}; the vocabulary ends at {}", field, token, model.vocab - 1));
  }
  return std::nullopt;
}

// How many tokens the answer may have, or that prompt and answer do not fit.
Problem fit(const Call& call, const ServedModel& model, const ParsedRequest& parsed, size_t prompt,
            int& max_tokens) {
  const int64_t room = int64_t{model.context} - static_cast<int64_t>(prompt);
  const bool open = parsed.max_tokens.value_or(-1) < 0 || parsed.cut_max_tokens;
  int64_t wanted = std::max(1, parsed.max_tokens.value_or(1));
  if (open && room > 0) wanted = std::min(room, parsed.max_tokens.value_or(-1) < 0 ? room : wanted);
  if (model.max_output > 0) wanted = std::min<int64_t>(wanted, model.max_output);
  if (wanted > room)
    return context_overflow(
        call.operation->dialect,
        {.context = model.context, .prompt = static_cast<int64_t>(prompt), .completion = open ? 1 : wanted});
  max_tokens = static_cast<int>(wanted);
  return std::nullopt;
}

Problem check_counts(const ServedModel& model, const ParsedRequest& parsed,
                     const request::SamplingParams& sampling) {
  const int sequences = request::sequence_count(sampling);
  if (sequences > model.max_sequences)
    return invalid_value("n", fmt::format("{} choices or beams are asked for; the limit is {}", sequences,
                                          model.max_sequences));
  const size_t prompts = std::max<size_t>(1, parsed.prompts.size());
  if (prompts * static_cast<size_t>(sequences) > GenerationLimits::sequences)
    return invalid_value(
        "prompt", fmt::format("{} prompts with {} choices or beams each are asked for; the limit is {} "
                              "in all",
                              prompts, sequences, GenerationLimits::sequences));
  if (parsed.max_tokens == 0 && !parsed.echo)
    return invalid_value("max_tokens", "'max_tokens' is 0; without 'echo' it must be at least 1");
  if (parsed.stream && parsed.prompt_logprobs)
    return invalid_value("prompt_logprobs", "'prompt_logprobs' is not available in streams");
  return std::nullopt;
}

std::string echoed_message(const ParsedRequest& parsed) {
  if (!parsed.echo || !is_chat(parsed)) return {};
  const json::object& last = parsed.chat.messages.back().get_object();
  if (last.at("role") != "assistant") return {};
  return std::string(last.at("content").get_string());
}

// What is malformed is refused before the engine sees the request. The grammar is compiled while the prompt runs, but where
// so many are that the requests that wait for theirs would take the places of others.
Problem compile_constraint(const ServedModel& model, const AnswerConstraint& wanted, EngineJob& job,
                           std::shared_ptr<PendingGrammar>& out) {
  if (model.grammars == nullptr)
    return unsupported_parameter("response_format", "the model has no tokenizer for structured output");
  const auto most = static_cast<size_t>(std::max(1, model.max_sequences / 4));
  const bool crowded = model.grammars->statistics().compiling >= most;
  out = PendingGrammar::begin(*model.grammars, *wanted.constraint);
  Problem problem = out->problem();
  if (!problem && (crowded || wanted.is_wish)) {
    job.first = out;
    job.is_wish = wanted.is_wish;
  }
  return problem;
}

Problem fill(const Call& call, const ServedModel& model, AnswerSetup& setup, AnswerConstraint wanted,
             EngineJob& prepared) {
  const ParsedRequest& parsed = setup.parsed;
  Result<Parameters> parameters = make_parameters(parsed, model.tokenizer);
  if (!parameters) return to_api_error(parameters.error());
  request::SamplingParams& sampling = parameters->sampling;
  if (parsed.echo && sampling.logprobs && !sampling.prompt_logprobs && !is_chat(parsed))
    sampling.prompt_logprobs = sampling.logprobs;
  if (Problem problem = check_counts(model, parsed, sampling)) return problem;
  if (setup.output) parameters->text.shown = model.format->mark_tokens;
  Result<engine::TextMaker> text = engine::make_text_maker(*model.tokenizer, std::move(parameters->text));
  if (!text) return invalid_value("stop", text.error().message);
  std::shared_ptr<PendingGrammar> grammar;
  if (wanted.constraint) {
    if (Problem problem = compile_constraint(model, wanted, prepared, grammar)) {
      if (!wanted.is_wish) return problem;
      wanted.constraint.reset();
      grammar.reset();
    }
  }
  setup.grammar = grammar;
  sampling.constraint = std::move(wanted.constraint);
  for (const std::vector<Token>& prompt : setup.prompts) {
    const size_t length = setup.positions.empty() ? prompt.size() : setup.positions.back() + size_t{1};
    if (Problem problem = fit(call, model, parsed, length, sampling.max_tokens)) return problem;
    if (Status valid = request::validate(sampling, static_cast<int>(model.vocab)); !valid)
      return to_api_error(valid.error());
    engine::Submission& submission = prepared.submissions.emplace_back(make_submission(call, parsed, prompt));
    submission.request.positions.values = setup.positions;
    if (!parsed.chat.pictures.empty()) {
      const Status placed =
          engine::add_picture_spans(submission.request, model.pictures->style(), parsed.chat.pictures);
      if (!placed) return invalid_value("messages", placed.error().message);
    }
    submission.request.task = sampling;
    submission.text = text->make;
    submission.text_bytes = text->bytes;
    submission.kept = grammar;
    submission.request.gate = grammar;
  }
  return std::nullopt;
}

Problem encode_all(const Call& call, const ServedModel& model, const ParsedRequest& parsed, Purpose purpose,
                   std::vector<std::vector<Token>>& out) {
  const PromptEncoder encoder(call, model, parsed, purpose);
  if (is_chat(parsed)) {
    if (Problem problem = encoder.encode_chat(out.emplace_back())) return problem;
  }
  for (const Prompt& prompt : parsed.prompts) {
    std::vector<Token>& tokens = out.emplace_back();
    if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
      tokens = *ids;
    } else if (Problem problem = encoder.encode_text(std::get<std::string>(prompt), tokens)) {
      return problem;
    }
  }
  for (std::vector<Token>& tokens : out) {
    truncate(model, parsed, tokens);
    if (Problem problem = check_tokens(model, parsed, tokens)) return problem;
  }
  return std::nullopt;
}

// The tools of the request where the template reads them, and what it leaves out as text of the messages.
void add_tools(const ServedModel& model, const ParsedRequest& parsed, json::object& variables) {
  const bool offered = parsed.tools.offered();
  if (offered) variables["tools"] = parsed.tools.definitions;
  if (!model.format || !model.format->output.tools) return;
  const chat::ToolText missing{.tools = !model.format->shows_tools, .calls = !model.format->shows_calls};
  if (!missing.tools && !missing.calls) return;
  variables["messages"] =
      chat::with_tool_text(parsed.chat.messages, offered ? parsed.tools.definitions : json::array(),
                           *model.format->output.tools, missing);
}

// How the text of the answer is read. Marks in it stay visible only where somebody reads them.
void set_output(const ServedModel& model, AnswerSetup& setup) {
  if (!is_chat(setup.parsed) || !model.format) return;
  const chat::OutputFormat& whole = model.format->output;
  const bool has_channels = whole.tools && whole.tools->syntax == chat::CallSyntax::Harmony;
  chat::OutputFormat output;
  if (setup.parsed.tools.offered() || has_channels) output.tools = whole.tools;
  if (setup.parsed.reasoning.is_split) output.reasoning = whole.reasoning;
  if (output.is_plain()) return;
  chat::ToolSet tools;
  if (setup.parsed.tools.offered()) {
    for (const json::value& tool : setup.parsed.tools.definitions) {
      const json::object& function = tool.at("function").as_object();
      tools.add(std::string(function.at("name").as_string()), function.at("parameters"));
    }
  }
  setup.start = answer_start(model, setup, output.reasoning ? &*output.reasoning : nullptr);
  setup.output = std::make_shared<chat::OutputFormat>(std::move(output));
  setup.tools = std::make_shared<chat::ToolSet>(std::move(tools));
}

}  // namespace

const ServedModel* choose_model(const Call& call, const ParsedRequest& parsed, Problem& problem) {
  const ServedModel* model = find_model(call, parsed.model);
  if (model == nullptr) problem = model_not_found(call, parsed.model);
  return model;
}

Problem render_messages(const Call& call, const ServedModel& model, const ParsedRequest& parsed,
                        chat::Rendering& out) {
  if (model.chat_template == nullptr)
    return invalid_value("messages",
                         fmt::format("the model '{}' has no chat template; use /v1/completions", model.id));
  const ChatDraft& chat = parsed.chat;
  if (chat.continue_final_message && chat.add_generation_prompt)
    return invalid_value("continue_final_message",
                         "'continue_final_message' and 'add_generation_prompt' must not both be true");
  json::object variables{{"messages", chat.messages}, {"add_generation_prompt", chat.add_generation_prompt}};
  add_tools(model, parsed, variables);
  chat::ChatPrompt prompt{.variables = std::move(variables),
                          .request_variables = chat.variables,
                          .continue_final_message = chat.continue_final_message,
                          .interrupt = call.interrupt};
  Result<chat::Rendering> rendering =
      chat::render_chat(*model.chat_template, *model.tokenizer, std::move(prompt));
  if (rendering) {
    out = std::move(*rendering);
    return std::nullopt;
  }
  ApiError error = invalid_value("messages", rendering.error().message);
  error.code = "template_error";
  return error;
}

Problem encode_prompts(const Call& call, const ServedModel& model, const ParsedRequest& parsed,
                       Purpose purpose, std::vector<std::vector<Token>>& out) {
  Problem problem;
  if (parsed.chat.files.empty()) {
    problem = encode_all(call, model, parsed, purpose, out);
  } else {
    ParsedRequest seen = parsed;
    problem = read_pictures(call, model, seen.chat);
    if (!problem) problem = encode_all(call, model, seen, purpose, out);
  }
  if (problem) problem = in_clients_words(*std::move(problem), parsed.sent);
  return problem;
}

engine::Submission make_submission(const Call& call, const ParsedRequest& parsed, std::vector<Token> prompt) {
  engine::Submission submission;
  submission.request.client = call.context.client;
  submission.request.priority = -parsed.priority;
  submission.request.prompt = std::move(prompt);
  submission.request.cache_salt = call.context.cache_salt;
  if (!parsed.cache_salt.empty()) submission.request.cache_salt += "\x1f" + parsed.cache_salt;
  return submission;
}

Problem prepare_answer(const Call& call, ParsedRequest parsed, EngineJob& job, AnswerSetup& setup) {
  if (Problem problem = check_tools(parsed)) return in_clients_words(*std::move(problem), parsed.sent);
  fill_defaults(parsed, job.model->defaults);
  setup = {.parsed = std::move(parsed),
           .model = job.model,
           .request_id = call.context.request_id,
           .created = call.context.now_s,
           .clock = call.context.clock};
  if (Problem problem = compress_request(call, *job.model, setup))
    return in_clients_words(*std::move(problem), setup.parsed.sent);
  if (Problem problem = read_pictures(call, *job.model, setup.parsed.chat)) return problem;
  if (Problem problem = encode_prompts(call, *job.model, setup.parsed, Purpose::Run, setup.prompts))
    return problem;
  set_output(*job.model, setup);
  AnswerConstraint wanted;
  Problem problem = prefill_request(call, *job.model, setup);
  if (!problem) problem = constrain_answer(*job.model, setup, wanted);
  if (!problem) problem = fill(call, *job.model, setup, std::move(wanted), job);
  if (problem) return in_clients_words(*std::move(problem), setup.parsed.sent);
  return std::nullopt;
}

void forget_failed_wish(EngineJob& job) {
  const bool failed = job.first != nullptr && job.first->state() == request::Gate::State::Failed;
  job.first.reset();
  if (!failed || !job.is_wish) return;
  for (engine::Submission& submission : job.submissions) {
    submission.request.sampling().constraint.reset();
    submission.request.gate.reset();
    submission.kept.reset();
  }
}

void settle_first(EngineJob& job) {
  if (job.first != nullptr) {
    const auto settled = std::make_shared<std::promise<void>>();
    job.first->when_settled([settled] { settled->set_value(); });
    settled->get_future().wait();
  }
  forget_failed_wish(job);
}

Reply generate(const Call& call, ParsedRequest parsed, MakeWriter make_writer) {
  Problem problem;
  EngineJob prepared{.stream = parsed.stream};
  prepared.model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  AnswerSetup setup;
  if ((problem = prepare_answer(call, std::move(parsed), prepared, setup))) return *problem;
  setup.echoed = echoed_message(setup.parsed);
  setup.parsed.chat = {};
  setup.parsed.prompts.clear();
  prepared.writer = make_writer(std::move(setup));
  return prepared;
}

}  // namespace sluice::api
