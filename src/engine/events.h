// What goes into the engine and what comes out of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "request/request.h"
#include "request/step.h"

namespace sluice::engine {

using request::FinishReason;
using request::RequestId;

// Turns the tokens of one choice into text and looks for stop strings. Used by the engine's thread only; an
// error ends the request alone.
class TextStream {
 public:
  struct Piece {
    std::string text;      // certain from now on
    bool stopped = false;  // a stop string was met: the text ends before it
    std::string stop;      // which one
  };
  virtual ~TextStream() = default;
  virtual Result<Piece> push(std::span<const Token> tokens) = 0;
  // What was held back, when the choice ends without a stop string.
  virtual Result<std::string> finish() = 0;
};

// New tokens of a choice. Text and tokens need not correspond: text waits for complete characters.
struct Delta {
  int choice = 0;
  std::vector<request::Sampled> tokens;
  std::string text;
  std::vector<request::Sampled> prompt_logprobs;  // before the first token, where asked for
  std::vector<float> prompt_attention;  // with the last token, where asked for; see request::Outcome
};

struct ChoiceEnd {
  int choice = 0;
  FinishReason reason = FinishReason::Stop;
  double score = 0;  // of a search's hypothesis, or the mean log-probability of a choice
  // What ended it where the reason is Stop: a stop string, or else an end or stop token.
  std::string stop_string;
  std::optional<Token> stop_token;
};

// The vector that a request asked for.
struct Embedding {
  std::vector<float> values;
};

struct Usage {
  int prompt_tokens = 0, cached_tokens = 0;
  int generated_tokens = 0;  // of all sequences that ran
  int drafted_tokens = 0,
      accepted_drafts = 0;  // guesses that were verified, and those of them that were right
};

// Seconds; each 0 where it did not come to that.
struct Timings {
  double queue = 0;  // received to started
  double ttft = 0;   // received to first token
  double tpot = 0;   // mean gap between tokens, the longest choice's
  double latency = 0;
};

// Comes exactly once, last. Stop or Length: all choices have ended, each with its own reason.
struct Finished {
  FinishReason reason = FinishReason::Stop;
  std::optional<Error> error;
  // Seconds; set where it was refused because its deadline could not be met, which then could be.
  std::optional<int> retry_after_s = std::nullopt;
  Usage usage;
  Timings timings;
};

using Event = std::variant<Delta, ChoiceEnd, Embedding, Finished>;

struct Submission {
  request::Request request;  // id and arrival are set by the engine
  std::optional<Seconds> time_limit;
  // From its arrival to its first token: refused at once where the measured rate says that this cannot be met.
  std::optional<Seconds> first_token_within;
  // Called on the engine's thread, in order; must neither block nor throw.
  std::function<void(Event)> deliver;
  // Null: no text.
  std::function<std::unique_ptr<TextStream>(int choice)> text;
  size_t text_bytes = 0;  // that `text` holds, which count in the queue's bytes
  // Kept until the request has ended: what holds the compiled grammar of its constraint.
  std::shared_ptr<const void> kept = nullptr;
};

}  // namespace sluice::engine
