// A request as its client wrote it, checked field by field, whatever the dialect. The field tables write it; prompts,
// sampling parameters and answers are made from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/lab/planner.h"
#include "base/ids.h"
#include "base/json.h"
#include "compress/options.h"
#include "engine/picture_prompt.h"
#include "request/request.h"
#include "request/sampling_params.h"

namespace sluice::api {

using Prompt = std::variant<std::string, std::vector<Token>>;

struct ContrastWeights {
  std::optional<double> alpha, beta;
};

// A picture that the server has to fetch.
struct PictureAddress {
  std::string url;    // http or https
  std::string where;  // in the request
};
using PictureSource = std::variant<std::string, PictureAddress>;  // a file's bytes, or where they are

struct ChatDraft {
  // Role from a closed set, content a string, or parts {"type": "image"} and {"type": "text", "text": ...} where a user's
  // message has pictures; what else the template may read.
  json::array messages;
  std::vector<PictureSource> files;       // of the pictures, in their order
  std::vector<engine::Picture> pictures;  // made of the files by the model's reader
  json::object variables;                 // of the template, from the request
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on with the last message
};

enum class ToolUse : uint8_t { Auto, None, Required };

struct ToolsDraft {
  json::array definitions;  // as templates read them: {type, function: {name, description, parameters}}
  ToolUse use = ToolUse::Auto;
  std::vector<std::string> only;    // the tools that may be called; empty: all
  std::vector<std::string> strict;  // those whose arguments must fit their schemas
  bool parallel = true;             // an answer may hold several calls
  bool is_named = false;            // the choice names one function

  // A named function is called once, as in other servers: a client that names it reads one call.
  bool one_call() const { return is_named || !parallel; }
  bool offered() const { return use != ToolUse::None && !definitions.empty(); }
  const json::object* find(std::string_view name) const;  // its function; null: there is none
};

struct ReasoningDraft {
  bool is_split = true;       // apart from the content
  bool is_shown = true;       // where it is split
  std::optional<int> budget;  // most tokens of it
  std::string budget_field;   // what the client calls it
};

// What a compression leaves as it is: every place of a text, or characters [begin, end) of a message or prompt.
struct KeepSpan {
  std::string text;
  int64_t begin = 0, end = 0;  // where there is no text
  std::optional<int64_t> message;
};

struct CompressDraft {
  compress::Options options;
  std::vector<KeepSpan> keep;
  bool system = false;       // system messages, too
  bool return_text = false;  // the answer holds the texts
};

struct ParsedRequest {
  std::vector<std::string> sent;  // the fields that the client gave and that were read: "options.stop"
  std::string model;

  // prompt
  std::vector<Prompt> prompts;
  bool several_prompts = false;  // they were written as a list, even if of one
  ChatDraft chat;
  ToolsDraft tools;
  ReasoningDraft reasoning;
  std::optional<CompressDraft> compress;      // the texts are made shorter first
  std::optional<bool> add_special_tokens;     // around the prompt; default: with texts, not with templates
  std::optional<int> truncate_prompt_tokens;  // -1: to what fits
  bool truncate_right = false;                // keep the first tokens instead of the last
  bool parse_special = false;                 // prompts that spell control tokens mean them

  // how tokens are chosen
  std::optional<int> max_tokens;  // nothing: the dialect's default; -1: what fits
  bool cut_max_tokens = false;    // to what fits, instead of refusing
  int min_tokens = 0;
  int n = 1;
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<int> top_k, best_of, beam_width;
  std::optional<uint64_t> seed;
  std::optional<double> repetition_penalty;
  double presence_penalty = 0, frequency_penalty = 0;
  request::SamplingDefaults fallback;  // the dialect's own, for models that have no settings
  std::vector<request::LogitBias> logit_bias;
  std::vector<std::string> bad_words;
  std::optional<std::vector<Token>> allowed_tokens;
  std::optional<request::Constraint> constraint;  // the form of the answer
  bool use_beam_search = false;
  std::optional<double> length_penalty, penalty_alpha;
  request::EarlyStopping early_stopping = request::EarlyStopping::Heuristic;
  std::optional<ContrastWeights> contrastive_decoding;
  std::vector<Token> stop_tokens;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::optional<request::Speculation> speculate;  // who guesses the next tokens
  int priority = 0;                               // lower goes first
  std::string cache_salt;

  // what the answer says
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool logprobs_wanted = false;  // the switch of chats; the count is top_logprobs
  std::optional<int> logprobs, top_logprobs, prompt_logprobs;
  bool echo = false;
  bool tokens_as_ids = false, return_token_ids = false;
  std::string request_id;

  // embeddings
  request::Pooling pooling;
  bool base64 = false;
  std::optional<int> dimensions;

  // the lab
  PlanQuestion question;
  std::vector<RecordedRequest> recorded;

  // tokenize and detokenize
  std::vector<Token> tokens;
  bool return_token_strings = false, with_pieces = false;
  std::optional<std::string> content;  // llama.cpp's name of the text, which asks for its form of the answer

  std::string system;  // Ollama's, beside a prompt
  json::value images;  // the same
  bool raw = false;    // Ollama's: the prompt is not put into the chat template

  // Responses: what the answer repeats
  json::object echoed;
};

}  // namespace sluice::api
