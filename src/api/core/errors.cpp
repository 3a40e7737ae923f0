#include "api/core/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/compiled_grammar.h"

namespace sluice::api {

namespace {

constexpr std::string_view kRequestFault = "invalid_request_error", kServerFault = "server_error";

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status < 500 ? kRequestFault : "api_error";
  }
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

// Names of a field beside the one that shared code has for it.
struct OtherName {
  std::string_view field, name;
};
constexpr auto kOtherNames = std::to_array<OtherName>({
    {"prompt", "input"},
    {"messages", "input"},
    {"messages", "prompt"},
    {"max_tokens", "max_completion_tokens"},
    {"max_tokens", "max_output_tokens"},
    {"max_tokens", "n_predict"},
    {"max_tokens", "options.num_predict"},
    {"stop", "stop_sequences"},
    {"repetition_penalty", "repeat_penalty"},
    {"repetition_penalty", "options.repeat_penalty"},
    {"logprobs", "n_probs"},
    {"response_format", "structured_outputs"},
    {"response_format", "guided_json"},
    {"response_format", "guided_regex"},
    {"response_format", "guided_choice"},
    {"response_format", "guided_grammar"},
    {"response_format", "grammar"},
    {"response_format", "json_schema"},
    {"response_format", "format"},
    {"response_format", "text.format"},
    {"response_format", "output_config.format"},
});

std::string name_sent(const std::string& field, const std::vector<std::string>& sent) {
  const auto was_sent = [&](std::string_view name) {
    return std::find(sent.begin(), sent.end(), name) != sent.end();
  };
  if (was_sent(field)) return field;
  for (const std::string outer : {"options.", "parameters."})
    if (was_sent(outer + field)) return outer + field;
  for (const OtherName& other : kOtherNames)
    if (other.field == field && was_sent(other.name)) return std::string(other.name);
  return field;
}

}  // namespace

Error wrong(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

std::string_view clipped(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string shown(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = write_json(value);
  return text.size() <= 60 ? text : std::string(clipped(text, 57)) + "...";
}

ApiError invalid_value(std::string_view param, std::string message) {
  return {.status = 400,
          .type = std::string(kRequestFault),
          .code = "invalid_value",
          .param = std::string(param),
          .message = std::move(message)};
}

ApiError unsupported_parameter(std::string_view param, std::string message) {
  ApiError error = invalid_value(param, std::move(message));
  error.code = "unsupported_parameter";
  return error;
}

ApiError model_not_found(const Call& call, std::string_view name) {
  std::string served, reason = "does not exist";
  for (const ServedModel& model : call.models) served += (served.empty() ? "'" : ", '") + model.id + "'";
  for (const AbsentModel& model : call.absent)
    if (model.id == name) reason = model.reason;
  return {.status = 404,
          .type = "not_found_error",
          .code = "model_not_found",
          .param = "model",
          .message = fmt::format("The model '{}' {}. This server has {}.", clipped(name, 200), reason,
                                 served.empty() ? "none at the moment" : clipped(served, 1000))};
}

ApiError in_clients_words(ApiError error, const std::vector<std::string>& sent) {
  const std::string name = name_sent(error.param, sent);
  if (name == error.param) return error;
  const std::string quoted = fmt::format("'{}'", error.param);
  if (const size_t at = error.message.find(quoted); at != std::string::npos) {
    error.message.replace(at, quoted.size(), fmt::format("'{}'", name));
  } else if (error.message.starts_with(error.param + " ")) {
    error.message.replace(0, error.param.size(), name);
  }
  error.param = name;
  return error;
}

ApiError context_overflow(Dialect dialect, const ContextNeed& need) {
  ApiError error = invalid_value("", "");
  error.code = "context_length_exceeded";
  error.message =
      dialect == Dialect::Anthropic
          ? fmt::format("prompt is too long: {} tokens > {} maximum", need.prompt, need.context)
          : fmt::format(
                "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
                "the "
                "messages, {} in the completion). Please reduce the length of the messages or completion.",
                need.context, need.prompt + need.completion, need.prompt, need.completion);
  if (!need.counted) error.message += " (the prompt was not counted to its end)";
  return error;
}

int status_of(Dialect dialect, const ApiError& error) {
  return dialect == Dialect::Anthropic && error.status == 503 ? 529 : error.status;
}

std::string write_error(Dialect dialect, const ApiError& error, std::string_view request_id) {
  json::object body;
  switch (dialect) {
    case Dialect::OpenAi:
      body["error"] = {{"message", error.message},
                       {"type", error.type},
                       {"param", text_or_null(error.param)},
                       {"code", text_or_null(error.code)}};
      break;
    case Dialect::Anthropic:
      body["type"] = "error";
      body["error"] = {{"type", json::string(anthropic_type(error.status))}, {"message", error.message}};
      body["request_id"] = json::string(request_id);
      break;
    case Dialect::Ollama:
    case Dialect::Kserve:
      body["error"] = error.message;
      break;
  }
  return write_json(body);
}

ApiError to_api_error(const Error& error) {
  const auto fault = [&](int status, std::string_view type, std::string_view code) {
    return ApiError{.status = status,
                    .type = std::string(type),
                    .code = std::string(code),
                    .param = error.field,
                    .message = error.message};
  };
  // Another try may do better; clients do not make one by themselves, as they would after 500.
  if (error.field == grammar::kSchemaViolation)
    return {.status = 422,
            .type = std::string(kServerFault),
            .code = std::string(grammar::kSchemaViolation),
            .param = {},
            .message = error.message};
  switch (error.code) {
    case ErrorCode::InvalidArgument:
      return fault(400, kRequestFault, "invalid_value");
    case ErrorCode::Unsupported:
      return fault(400, kRequestFault, "unsupported_parameter");
    case ErrorCode::LimitExceeded:
      return fault(400, kRequestFault, "context_length_exceeded");
    case ErrorCode::Corrupt:
      return fault(400, kRequestFault, "invalid_json");
    case ErrorCode::NotFound:
      return fault(404, "not_found_error", "not_found");
    case ErrorCode::Unavailable: {
      ApiError overloaded = fault(503, kServerFault, "server_is_overloaded");
      overloaded.retry_after_s = 1;
      return overloaded;
    }
    case ErrorCode::Numerical:
      return fault(500, kServerFault, "numerical_error");
    case ErrorCode::Io:
    case ErrorCode::Internal:
      break;
  }
  return fault(500, kServerFault, "internal_error");
}

}  // namespace sluice::api
