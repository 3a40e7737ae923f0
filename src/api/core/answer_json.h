// Pieces of answers that several dialects share.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/answer.h"
#include "base/json.h"
#include "engine/events.h"
#include "tokenizer/tokenizer.h"

namespace sluice::api {

int64_t count_characters(std::string_view text);  // of UTF-8

std::string_view system_fingerprint();
std::string_view finish_reason(engine::FinishReason reason);  // OpenAI's: "stop" or "length"
// The same of a chat, whose answer may end with calls: "tool_calls".
std::string_view finish_reason(engine::FinishReason reason, bool has_called);
// vLLM's: the stop string or the stop token of the request that ended the choice; null for end tokens.
json::value stop_reason(const engine::ChoiceEnd& end, const ParsedRequest& parsed);

// What a request used, and how long it took.
struct Totals {
  const engine::Usage& usage;
  const engine::Timings& timings;
};

// Of the generated tokens, under OpenAI's names; those of drafts where there were any.
json::object output_details(const engine::Usage& usage, int reasoning_tokens);
json::object usage_json(const engine::Usage& usage, int reasoning_tokens = 0);
// llama.cpp's, which Open WebUI shows.
json::object timings_json(const engine::Usage& usage, const engine::Timings& timings);
// {id, type: "function", function: {name, arguments}}, as OpenAI has it.
json::object call_json(const chat::ToolCall& call);
json::array ids_json(std::span<const Token> tokens);
json::array ids_json(std::span<const request::Sampled> tokens);

// How tokens are named in log-probabilities.
struct TokenNames {
  const tokenizer::Tokenizer& tokenizer;
  bool as_ids = false;

  std::string text(Token token) const;  // valid UTF-8; part of a character is U+FFFD
  json::array bytes(Token token) const;
};

// The double of the fewest digits that is the same float, so that it is written short.
double shortest(float value);
// JSON has no infinities; OpenAI's API writes -9999 for the impossible.
double finite(float logprob);

// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}. `top`: how many likeliest are given.
json::object chat_logprobs(std::span<const request::Sampled> tokens, const TokenNames& names);
// One entry of a chat's list.
json::object token_logprob(const request::Sampled& token, const TokenNames& names);

// {tokens, token_logprobs, top_logprobs, text_offset}. Offsets count characters from the start of the choice's text
// and go on from piece to piece.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(TokenNames names) : names_(names) {}
  // A token without log-probability: the first of a prompt.
  void add_first(Token token);
  void add(const request::Sampled& token);
  bool empty() const { return tokens_.empty(); }
  json::object release();

 private:
  void add_name(Token token);

  TokenNames names_;
  int64_t offset_ = 0;
  json::array tokens_, logprobs_, top_, offsets_;
};

// -- long lists, written in pieces

// An object without its braces.
void append_members(const json::object& object, std::string& out);

using WriteToken = std::function<void(const request::Sampled& token, bool is_first, std::string& out)>;
// A piece for every few tokens, which outlive the pieces.
void add_runs(std::span<const request::Sampled> tokens, std::deque<Piece>& out, const WriteToken& write);

// ,"prompt_logprobs": vLLM's form: null for the first token, then {id: {logprob, rank, decoded_token}}.
void add_prompt_logprobs(std::span<const request::Sampled> tokens, TokenNames names, std::deque<Piece>& out);

// Tokens one after the other in a choice.
struct LogprobRun {
  std::span<const Token> first = {};  // without log-probability: the first of a prompt
  std::span<const request::Sampled> tokens = {};
};
// ,"logprobs": as CompletionLogprobs has them.
void add_completion_logprobs(const std::vector<LogprobRun>& runs, TokenNames names, std::deque<Piece>& out);

void append_event(std::string& out, std::string_view data);                            // data: ...
void append_event(std::string& out, std::string_view name, const json::object& data);  // event: ... data: ...

}  // namespace sluice::api
