#include "api/ollama/ollama.h"

#include <fmt/format.h>

#include "api/core/answer_json.h"
#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/compress_fields.h"
#include "api/fields/constraint_fields.h"
#include "api/fields/sampling_fields.h"
#include "api/fields/tool_fields.h"
#include "api/ollama/ollama_answer.h"
#include "api/openai/completions.h"
#include "api/openai/embeddings.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

using Limits = request::SamplingLimits;

// Base64 texts as the parts that OpenAI's clients send, before the words.
Result<json::array> picture_parts(const json::value& images, const json::value& text,
                                  std::string_view where) {
  const json::array* list = images.if_array();
  if (list == nullptr)
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}' must be a list of base64 texts", where)};
  json::array parts;
  for (const json::value& image : *list) {
    if (!image.is_string())
      return Error{ErrorCode::InvalidArgument, fmt::format("'{}' must be a list of base64 texts", where)};
    const std::string url = "data:;base64," + to_text(image);
    parts.push_back(json::object{{"type", "image_url"}, {"image_url", json::object{{"url", url}}}});
  }
  parts.push_back(json::object{{"type", "text"}, {"text", text}});
  return parts;
}

// An empty list asks to load the model.
Status read_ollama_messages(const json::value& value, ParsedRequest& parsed) {
  json::array plain;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& item = value.get_array()[i];
    plain.push_back(item);
    const json::object* message = item.if_object();
    if (message == nullptr) continue;
    json::object& made = plain.back().get_object();
    if (const json::value* images = message->if_contains("images");
        images != nullptr && !images->is_null() && !is_empty(*images)) {
      const json::value* words = message->if_contains("content");
      Result<json::array> parts = picture_parts(*images, words == nullptr ? json::value("") : *words,
                                                fmt::format("messages[{}].images", i));
      if (!parts) return parts.error();
      made["content"] = std::move(*parts);
    }
    if (const json::value* thinking = message->if_contains("thinking")) made["reasoning"] = *thinking;
    if (const json::value* name = message->if_contains("tool_name")) made["name"] = *name;
  }
  if (plain.empty()) return {};
  return read_message_list(plain, "messages", parsed);
}

Status read_prompt_images(const json::value& value, ParsedRequest& parsed) {
  parsed.images = value;
  return {};
}

Status read_user_prompt(const json::value& value, ParsedRequest& parsed) {
  if (!value.get_string().empty()) parsed.prompts.emplace_back(to_text(value));
  return {};
}

Status read_think(const json::value& value, ParsedRequest& parsed) {
  parsed.chat.variables["enable_thinking"] = !value.is_bool() || value.get_bool();
  if (value.is_string()) parsed.chat.variables["reasoning_effort"] = value;
  return {};
}

Status read_num_predict(const json::value& value, ParsedRequest& parsed) {
  parsed.max_tokens = std::max(-1, to_int(value));
  if (parsed.max_tokens == 0) parsed.max_tokens = 1;
  return {};
}

Status read_truncate(const json::value& value, ParsedRequest& parsed) {
  if (!value.get_bool()) parsed.truncate_prompt_tokens.reset();
  return {};
}

constexpr Field kOptions[] = {
    used("num_predict", integer(-2, Limits::kMaxTokens), "most tokens of the answer; below 0: what fits",
         read_num_predict)
        .by_default("what fits"),
    used("temperature", number(0, Limits::kTemperature), "0: always the likeliest token",
         into<&ParsedRequest::temperature>)
        .by_default("the model's"),
    used("top_k", integer(-1), "keep the k likeliest tokens; 0 or -1: all", into<&ParsedRequest::top_k>)
        .by_default("the model's"),
    used("top_p", number(0, 1), "keep the smallest set of tokens of at least this mass",
         into<&ParsedRequest::top_p>)
        .by_default("the model's"),
    used("min_p", number(0, 1), "keep tokens of at least this share of the likeliest's probability",
         into<&ParsedRequest::min_p>)
        .by_default("the model's"),
    used("typical_p", number(1e-6, 1), "keep the tokens nearest to the entropy",
         into<&ParsedRequest::typical_p>)
        .by_default("1"),
    used("repeat_penalty", number(Limits::kRepetitionPenaltyLow, Limits::kRepetitionPenaltyHigh),
         "of every token in prompt or answer", into<&ParsedRequest::repetition_penalty>)
        .by_default("the model's"),
    used("presence_penalty", number(-Limits::kPenalty, Limits::kPenalty), "of every token that was generated",
         into<&ParsedRequest::presence_penalty>)
        .by_default("0"),
    used("frequency_penalty", number(-Limits::kPenalty, Limits::kPenalty), "per time a token was generated",
         into<&ParsedRequest::frequency_penalty>)
        .by_default("0"),
    used("seed", {Kind::Seed}, "the same seed gives the same answer", into<&ParsedRequest::seed>)
        .by_default("a new one each time"),
    used("stop", {Kind::Texts}, "at most 16 strings that end the answer", into<&ParsedRequest::stop>),
    ignored("num_ctx", "the context is the server's"),
    ignored("num_keep", "contexts are not shifted"),
    ignored("repeat_last_n", "penalties look at the whole text"),
    ignored("num_batch", "the server's own"),
    ignored("num_gpu", "the server's own"),
    ignored("main_gpu", "the server's own"),
    ignored("num_thread", "the server's own"),
    ignored("use_mmap", "the server's own"),
    unsupported("mirostat", "this sampler is not offered", is_zero),
};

constexpr Field kCommon[] = {
    used("stream", {Kind::Boolean}, "lines of pieces", into<&ParsedRequest::stream>).by_default("true"),
    nested("options", "how tokens are chosen", kOptions),
    used("think", {}, "true, false or an effort, for the chat template", read_think)
        .by_default("the template's"),
    ignored("keep_alive", "models stay loaded"),
    ignored("truncate", "a prompt that does not fit is refused"),
    ignored("shift", "contexts are not shifted"),
    used("format", {}, "\"json\", or the schema of the answer", read_ollama_format),
};

constexpr Field kChat[] = {
    required(used("messages", {Kind::List}, "objects with role and content; none: the model is loaded",
                  read_ollama_messages)),
    used("tools", {Kind::List}, "functions that the model may call: {type: function, function: {...}}",
         read_tools),
};

constexpr Field kGenerate[] = {
    used("prompt", {Kind::Text}, "put into the chat template as the user's words; none: the model is loaded",
         read_user_prompt),
    used("system", {Kind::Text}, "the system message", into<&ParsedRequest::system>),
    used("raw", {Kind::Boolean}, "the prompt is taken as it is, with the control tokens that it spells",
         into<&ParsedRequest::raw>),
    ignored("context", "send a conversation to /api/chat"),
    unsupported("suffix", "text is generated at the end only", is_empty),
    unsupported("template", "requests bring no templates", is_empty),
    used("images", {Kind::List}, "base64 texts of pictures, before the prompt", read_prompt_images),
};

constexpr Field kEmbed[] = {
    required(used("input", {}, "a string or a list of strings", read_embedding_input)),
    used("dimensions", integer(1, 1 << 20), "keep this many numbers, brought back to length 1",
         into<&ParsedRequest::dimensions>)
        .by_default("all"),
    used("truncate", {Kind::Boolean}, "cut texts to what fits", read_truncate).by_default("true"),
    ignored("options", "have no meaning here"),
    ignored("keep_alive", "models stay loaded"),
};

constexpr Field kOllamaEmbedding[] = {
    required(used("prompt", {Kind::Text}, "a text",
                  [](const json::value& value, ParsedRequest& parsed) -> Status {
                    parsed.prompts.emplace_back(to_text(value));
                    return {};
                  })),
    ignored("options", "have no meaning here"),
    ignored("keep_alive", "models stay loaded"),
};

ParsedRequest ollama_draft() {
  ParsedRequest parsed;
  parsed.stream = true;
  parsed.cut_max_tokens = true;
  parsed.fallback = {.temperature = 0.8, .top_p = 0.9, .top_k = 40};
  return parsed;
}

Reply loaded(const Call& call, const ParsedRequest& parsed, std::string_view field) {
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  json::object out{{"model", model->id},
                   {"created_at", to_rfc3339(wall_time(call.context.clock, call.context.now_s))}};
  out[field] = field == "message" ? json::value{{"role", "assistant"}, {"content", ""}} : json::value("");
  out["done_reason"] = "load";
  out["done"] = true;
  return Answer{.body = write_json(out)};
}

}  // namespace

const RequestSchema& ollama_chat_schema() {
  static const RequestSchema schema{
      "OllamaChatRequest",
      {kChat, kCommon, model_field(), switch_logprobs_fields(), speculate_field(), compress_field()}};
  return schema;
}
const RequestSchema& ollama_generate_schema() {
  static const RequestSchema schema{
      "OllamaGenerateRequest",
      {kGenerate, kCommon, model_field(), switch_logprobs_fields(), speculate_field(), compress_field()}};
  return schema;
}
const RequestSchema& ollama_embed_schema() {
  static const RequestSchema schema{"OllamaEmbedRequest", {kEmbed, model_field()}};
  return schema;
}
const RequestSchema& ollama_embedding_schema() {
  static const RequestSchema schema{"OllamaEmbeddingRequest", {kOllamaEmbedding, model_field()}};
  return schema;
}

Reply ollama_chat(const Call& call) {
  ParsedRequest parsed = ollama_draft();
  if (Problem problem = read_body(call, ollama_chat_schema(), parsed)) return *problem;
  if (parsed.chat.messages.empty()) return loaded(call, parsed, "message");
  return generate(call, std::move(parsed), make_ollama_writer<OllamaForm::Chat>);
}

Reply ollama_generate(const Call& call) {
  ParsedRequest parsed = ollama_draft();
  if (Problem problem = read_body(call, ollama_generate_schema(), parsed)) return *problem;
  if (parsed.prompts.empty()) return loaded(call, parsed, "response");
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  if (parsed.raw || model->chat_template == nullptr) {
    parsed.parse_special = parsed.raw;
  } else {
    if (!parsed.system.empty())
      parsed.chat.messages.push_back({{"role", "system"}, {"content", parsed.system}});
    json::array messages{{{"role", "user"}, {"content", std::get<std::string>(parsed.prompts.front())}}};
    if (!parsed.images.is_null() && !is_empty(parsed.images)) {
      json::value& content = messages.front().get_object()["content"];
      Result<json::array> parts = picture_parts(parsed.images, content, "images");
      if (!parts) return to_api_error(parts.error());
      content = std::move(*parts);
    }
    if (Status read = read_message_list(messages, "prompt", parsed); !read) return to_api_error(read.error());
    parsed.prompts.clear();
  }
  return generate(call, std::move(parsed), make_ollama_writer<OllamaForm::Generate>);
}

Reply ollama_embed(const Call& call) {
  ParsedRequest parsed;
  parsed.truncate_prompt_tokens = -1;
  if (Problem problem = read_body(call, ollama_embed_schema(), parsed)) return *problem;
  return embed(call, std::move(parsed), make_ollama_embeddings<OllamaForm::Embed>);
}

Reply ollama_embedding(const Call& call) {
  ParsedRequest parsed;
  parsed.truncate_prompt_tokens = -1;
  if (Problem problem = read_body(call, ollama_embedding_schema(), parsed)) return *problem;
  return embed(call, std::move(parsed), make_ollama_embeddings<OllamaForm::Embedding>);
}

}  // namespace sluice::api
