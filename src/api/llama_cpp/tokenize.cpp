#include "api/llama_cpp/tokenize.h"

#include <fmt/format.h>

#include "api/core/answer_json.h"
#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/sampling_fields.h"
#include "api/openai/chat.h"
#include "api/prompt/messages.h"

namespace sluice::api {

namespace {

Status read_prompt_text(const json::value& value, ParsedRequest& parsed) {
  parsed.prompts.emplace_back(to_text(value));
  return {};
}

constexpr Field kTokenize[] = {
    used("prompt", {Kind::Text}, "a text; vLLM's form", read_prompt_text),
    used("messages", {Kind::List}, "a conversation, as for chats", read_messages),
    used("content", {Kind::Text}, "a text; llama.cpp's form, whose answer is {tokens} alone",
         into<&ParsedRequest::content>),
    used("add_special_tokens", {Kind::Boolean}, "put the tokens around the text that the model expects",
         into<&ParsedRequest::add_special_tokens>)
        .by_default("true with prompt, else false"),
    used("add_special", {Kind::Boolean}, "the same, llama.cpp's name",
         into<&ParsedRequest::add_special_tokens>)
        .by_default("as add_special_tokens"),
    used("parse_special", {Kind::Boolean}, "a text that spells control tokens means them",
         into<&ParsedRequest::parse_special>),
    used("return_token_strs", {Kind::Boolean}, "give the tokens as the vocabulary spells them",
         into<&ParsedRequest::return_token_strings>),
    used("with_pieces", {Kind::Boolean}, "with content: give {id, piece} instead of ids",
         into<&ParsedRequest::with_pieces>),
};

constexpr Field kDetokenize[] = {
    required(used("tokens", {Kind::Tokens}, "token ids", into<&ParsedRequest::tokens>)),
    used("skip_special_tokens", {Kind::Boolean}, "leave control tokens out",
         into<&ParsedRequest::skip_special_tokens>),
};

constexpr Field kTemplate[] = {
    required(used("messages", {Kind::List}, "a conversation, as for chats", read_messages)),
};

// A piece as text, or as a list of bytes where it is part of a character.
json::value piece_json(const TokenNames& names, Token token) {
  const json::array bytes = names.bytes(token);
  const std::string text = names.text(token);
  return text.find("\xEF\xBF\xBD") == std::string::npos ? json::value(text) : json::value(bytes);
}

// Written at once: as values of JSON they would take many times the bytes.
template <class Append>
void append_list(const std::vector<Token>& tokens, std::string& out, const Append& append) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append(tokens[i]);
  }
  out += ']';
}

Reply tokenize_content(const Call& call, const ServedModel& model, ParsedRequest parsed) {
  parsed.add_special_tokens = parsed.add_special_tokens.value_or(false);
  Result<std::vector<Token>> tokens =
      model.tokenizer->encode(*parsed.content, {.parse_special = parsed.parse_special,
                                                .add_special = *parsed.add_special_tokens,
                                                .interrupt = call.interrupt});
  if (!tokens) return invalid_value("content", tokens.error().message);
  const TokenNames names{*model.tokenizer};
  std::string body = "{\"tokens\":";
  append_list(*tokens, body, [&](Token token) {
    if (parsed.with_pieces) {
      write_json(json::object{{"id", token}, {"piece", piece_json(names, token)}}, body);
    } else {
      body += std::to_string(token);
    }
  });
  return Answer{.body = body + "}"};
}

}  // namespace

const RequestSchema& tokenize_schema() {
  static const RequestSchema schema{"TokenizeRequest", {kTokenize, model_field(), conversation_fields()}};
  return schema;
}
const RequestSchema& detokenize_schema() {
  static const RequestSchema schema{"DetokenizeRequest", {kDetokenize, model_field()}};
  return schema;
}
const RequestSchema& template_schema() {
  static const RequestSchema schema{"ApplyTemplateRequest",
                                    {kTemplate, model_field(), conversation_fields()}};
  return schema;
}

Reply tokenize(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, tokenize_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  if (parsed.content) return tokenize_content(call, *model, std::move(parsed));
  if (parsed.prompts.empty() && parsed.chat.messages.empty())
    return invalid_value("prompt", "'prompt', 'messages' or 'content' is missing");
  std::vector<std::vector<Token>> encoded;
  if ((problem = encode_prompts(call, *model, parsed, Purpose::Show, encoded))) return *problem;
  const std::vector<Token>& tokens = encoded.front();
  std::string body =
      fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":", tokens.size(), model->context);
  append_list(tokens, body, [&](Token token) { body += std::to_string(token); });
  body += ",\"token_strs\":";
  if (parsed.return_token_strings) {
    append_list(tokens, body,
                [&](Token token) { write_json(json::string(model->tokenizer->spelling(token)), body); });
  } else {
    body += "null";
  }
  return Answer{.body = body + "}"};
}

Reply detokenize(const Call& call) {
  ParsedRequest parsed;
  parsed.skip_special_tokens = false;
  if (Problem problem = read_body(call, detokenize_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  for (const Token token : parsed.tokens) {
    if (token >= model->vocab)
      return invalid_value(
          "tokens", fmt::format("'tokens' holds {}; the vocabulary ends at {}", token, model->vocab - 1));
  }
  const std::string text = model->tokenizer->decode(parsed.tokens, parsed.skip_special_tokens);
  return Answer{.body = write_json(json::object{{"prompt", text}, {"content", text}})};
}

Reply apply_template(const Call& call) {
  ParsedRequest parsed;
  if (Problem problem = read_body(call, template_schema(), parsed)) return *problem;
  Problem problem;
  const ServedModel* model = choose_model(call, parsed, problem);
  if (problem) return *problem;
  chat::Rendering rendering;
  if ((problem = render_messages(call, *model, parsed, rendering))) return *problem;
  return Answer{.body = write_json(json::object{{"prompt", rendering.text()}})};
}

}  // namespace sluice::api
