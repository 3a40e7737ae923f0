#include "api/core/answer_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "api/core/errors.h"
#include "chat/constraint/tag_parts.h"
#include "chat/constraint/tool_tag.h"
#include "chat/formats/text_cursor.h"
#include "grammar/compiled_grammar.h"

namespace sluice::api {

namespace {

constexpr std::string_view kFinalHeader = "<|channel|>final<|message|>";

bool has_channels(const ServedModel& model) {
  const std::optional<chat::ToolFormat>& tools = model.format->output.tools;
  return tools && tools->syntax == chat::CallSyntax::Harmony;
}

std::vector<Token> encoded(const ServedModel& model, std::string_view text) {
  Result<std::vector<Token>> tokens =
      model.tokenizer->encode(text, {.parse_special = true, .add_special = false});
  return tokens ? std::move(*tokens) : std::vector<Token>();
}

// Templates that do not read the effort get it as a number of tokens; "high" has no limit.
std::optional<int> budget_of_effort(std::string_view effort) {
  constexpr int kMinimal = 256, kLow = 1024, kMedium = 4096;
  if (effort == "none") return 0;
  if (effort == "minimal") return kMinimal;
  if (effort == "low") return kLow;
  if (effort == "medium") return kMedium;
  return std::nullopt;
}

std::optional<int> reasoning_budget(const ServedModel& model, const ParsedRequest& parsed) {
  if (parsed.reasoning.budget) return parsed.reasoning.budget;
  const std::string_view source = model.chat_template->source();
  const auto unread = [&](std::string_view name) -> const json::value* {
    return source.find(name) == std::string_view::npos ? parsed.chat.variables.if_contains(name) : nullptr;
  };
  const json::value* thinks = unread("enable_thinking");
  if (thinks != nullptr && thinks->is_bool() && !thinks->get_bool()) return 0;
  const json::value* effort = unread("reasoning_effort");
  return effort != nullptr && effort->is_string() ? budget_of_effort(effort->get_string()) : std::nullopt;
}

// The constraint begins when the reasoning has ended, which a budget makes happen.
void set_free_start(const ServedModel& model, const AnswerSetup& setup, request::Constraint& out) {
  const std::optional<chat::ReasoningFormat>& reasoning = model.format->output.reasoning;
  const chat::AnswerStart start = answer_start(model, setup, reasoning ? &*reasoning : nullptr);
  if (start == chat::AnswerStart::Content) return;
  out.start.budget = reasoning_budget(model, setup.parsed);
  if (has_channels(model)) {
    const bool has_headers = std::holds_alternative<request::StructuralTag>(out.body) ||
                             std::holds_alternative<request::AnyText>(out.body);
    out.after = has_headers ? "<|end|>" : kFinalHeader;
    if (has_headers) out.start.opening = encoded(model, "<|channel|>analysis<|message|>");
    out.start.closing =
        encoded(model, "<|end|>" + (has_headers ? "" : "<|start|>assistant" + std::string(kFinalHeader)));
    return;
  }
  if (!reasoning) return;
  if (start == chat::AnswerStart::Fresh) {
    out.start.opening = encoded(model, chat::trimmed(reasoning->begin));
    if (out.start.opening.empty()) return;
  }
  out.after = chat::trimmed(reasoning->end);
  out.start.closing = encoded(model, reasoning->end);
}

Problem check_strict(const ToolsDraft& tools, const chat::ToolFormat& format,
                     const std::vector<chat::LooseKeyword>& loose) {
  for (const std::string& name : tools.strict) {
    const json::value& schema = tools.find(name)->at("parameters");
    const Result<grammar::PreparedConstraint> prepared =
        grammar::prepare({request::JsonSchema{.schema = write_json(schema), .strict = true}, ""});
    if (!prepared)
      return invalid_value("tools",
                           fmt::format("'strict' of the tool '{}': {}", name, prepared.error().message));
    for (const chat::LooseKeyword& one : loose)
      if (one.tool == name)
        return invalid_value("tools",
                             fmt::format("'strict' of the tool '{}': `{}` at {} cannot be enforced in "
                                         "the model's format of calls, '{}'",
                                         name, one.keyword, one.path, format.name));
  }
  return std::nullopt;
}

chat::ToolSet callable(const ToolsDraft& tools) {
  chat::ToolSet set;
  for (const json::value& tool : tools.definitions) {
    const json::object& function = tool.at("function").as_object();
    const std::string name(function.at("name").as_string());
    const bool may_call =
        tools.only.empty() || std::find(tools.only.begin(), tools.only.end(), name) != tools.only.end();
    if (may_call) set.add(name, function.at("parameters"));
  }
  return set;
}

// The schema of an answer that may call tools instead; nothing where the form has no schema.
std::optional<json::value> schema_of(const request::Constraint& constraint) {
  if (std::holds_alternative<request::JsonObject>(constraint.body)) return json::value{{"type", "object"}};
  const auto* schema = std::get_if<request::JsonSchema>(&constraint.body);
  if (schema == nullptr) return std::nullopt;
  Result<json::value> parsed = parse_json(schema->schema, "the schema");
  return parsed ? std::optional(std::move(*parsed)) : std::nullopt;
}

Problem constrain_calls(const ServedModel& model, const ParsedRequest& parsed, AnswerConstraint& out) {
  const ToolsDraft& tools = parsed.tools;
  const chat::ToolFormat& format = *model.format->output.tools;
  const bool is_required = tools.use == ToolUse::Required;
  std::optional<json::value> answer;
  if (parsed.constraint && !is_required) {
    answer = schema_of(*parsed.constraint);
    if (!answer) return std::nullopt;  // the form leaves no room for calls
  }
  chat::ToolTag tag = chat::make_tool_tag(format, callable(tools),
                                          {.required = is_required || answer, .one = tools.one_call()});
  if (Problem problem = check_strict(tools, format, tag.loose)) return problem;
  request::StructuralTag body{.tag = {}, .strict = false, .lenient = !answer};
  if (answer) {
    json::value whole = chat::fits_schema(std::move(*answer));
    if (has_channels(model))
      whole = chat::in_order(
          {chat::maybe(chat::exactly("<|start|>assistant")), chat::exactly(kFinalHeader), std::move(whole)});
    json::value& calls = tag.tag.at("format");
    calls = chat::one_of({std::move(calls), std::move(whole)});
  }
  body.tag = write_json(tag.tag);
  out.constraint = request::Constraint{.body = std::move(body), .after = {}};
  out.is_wish = !is_required && !answer && tools.strict.empty();
  return std::nullopt;
}

}  // namespace

chat::AnswerStart answer_start(const ServedModel& model, const AnswerSetup& setup,
                               const chat::ReasoningFormat* format) {
  constexpr size_t kTail = 32;
  const std::vector<Token>& prompt = setup.prompts.front();
  const auto tail = std::span(prompt).last(std::min(kTail, prompt.size()));
  if (format != nullptr && chat::opens_reasoning(model.tokenizer->decode(tail), *format))
    return chat::AnswerStart::Reasoning;
  return setup.parsed.chat.continue_final_message ? chat::AnswerStart::Content : chat::AnswerStart::Fresh;
}

Problem constrain_answer(const ServedModel& model, const AnswerSetup& setup, AnswerConstraint& out) {
  const ParsedRequest& parsed = setup.parsed;
  out.constraint = parsed.constraint;
  if (parsed.chat.messages.empty() || !model.format) return std::nullopt;
  if (parsed.tools.offered() && model.format->output.tools) {
    if (Problem problem = constrain_calls(model, parsed, out)) return problem;
  }
  if (!model.format->reasons()) return std::nullopt;
  if (!out.constraint && reasoning_budget(model, parsed)) {
    out.constraint = request::Constraint{.body = request::AnyText{}, .after = {}};
    set_free_start(model, setup, *out.constraint);
    if (out.constraint->after.empty()) out.constraint.reset();
  } else if (out.constraint) {
    set_free_start(model, setup, *out.constraint);
  }
  return std::nullopt;
}

}  // namespace sluice::api
