// What a request asks of decoding: plain data, filled by the API and the command line, read by decode and the
// scheduler. Modes that exclude each other are alternatives of one variant, so no field is ever ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "request/constraint.h"
#include "request/speculation.h"

namespace sluice::request {

// Draw one token from the filtered distribution. Numbers are doubles as they were written in the request, so
// that validate() sees a value that no float can hold.
struct Sampling {
  double temperature = 1;  // 0: greedy, the filters below then change nothing
  int top_k = 0;           // keep the k likeliest; 0 or -1: all
  double top_p = 1;        // keep the smallest set of at least this mass
  double min_p = 0;        // keep what is at least this share of the likeliest
  double typical_p = 1;    // keep the tokens nearest to the entropy, of at least this mass
  std::optional<uint64_t> seed;
  int best_of = 0;  // sequences drawn, of which the n likeliest are returned; 0: n
};

// When beam search may stop before max_tokens, in the sense of transformers' early_stopping.
enum class EarlyStopping : uint8_t {
  AtWidth,    // true: as soon as `width` hypotheses are finished
  Heuristic,  // false: when the best running beam, at its present length, is worse than the worst finished
              // one
  Never,      // "never": when no running beam can still become better than the worst finished one
};

struct BeamSearch {
  int width = 4;
  double length_penalty = 1;  // a hypothesis of length t scores sum of log-probabilities / t^length_penalty
  EarlyStopping early_stopping = EarlyStopping::Heuristic;
};

// (1 - alpha) * probability - alpha * largest cosine to the hidden states of the context, over top_k
// candidates.
struct ContrastiveSearch {
  int top_k = 4;
  double alpha = 0.6;
};

// (1 + beta) * expert - beta * amateur, where the expert's probability is at least alpha times its largest.
struct ContrastiveDecoding {
  double alpha = 0.1;
  double beta = 0.5;
  Sampling sampling;  // how a token is drawn from the combined logits
};

using Method = std::variant<Sampling, BeamSearch, ContrastiveSearch, ContrastiveDecoding>;

struct LogitBias {
  Token token = 0;
  double bias = 0;
};

struct SamplingParams {
  // Of every token in prompt or output; divides positive, multiplies negative logits.
  double repetition_penalty = 1;
  double presence_penalty = 0;   // subtracted from every token in the output
  double frequency_penalty = 0;  // subtracted once per occurrence in the output
  std::vector<LogitBias> logit_bias;
  std::vector<std::vector<Token>> bad_words;         // sequences that must not be completed
  std::optional<std::vector<Token>> allowed_tokens;  // nothing else may be generated
  std::optional<Constraint> constraint;              // what the text must be
  std::vector<Token> stop_tokens;                    // end the sequence, besides the model's own end tokens
  bool ignore_eos = false;                           // the model's own end tokens do not end the sequence
  int min_tokens = 0;                                // end and stop tokens are masked before this many
  int max_tokens = 16;
  std::optional<int> logprobs;         // log-probability of each generated token and of this many likeliest
  std::optional<int> prompt_logprobs;  // the same for the tokens of the prompt
  int prompt_logprobs_from = 0;        // ... of which those before this one have none
  // With the last token: how much the rows that the tokens were sampled from attended to each token of the prompt.
  bool prompt_attention = false;
  int n = 1;  // choices returned
  // Who guesses the tokens that follow; absent: as the engine is set up. The answer is the same whoever does.
  std::optional<Speculation> speculate;
  Method method = Sampling{};
};

// What is sampled with where a request leaves the fields out. Nothing: whoever reads the request has a default.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;

  bool empty() const;
  bool operator==(const SamplingDefaults&) const = default;
};

// Each field from the first that has it.
SamplingDefaults first_of(const SamplingDefaults& first, const SamplingDefaults& second);
// What a reader whose own defaults are `fallback` samples with: a recipe is taken whole, so that where it says
// anything the fallback says nothing.
const SamplingDefaults& recipe_or(const SamplingDefaults& recipe, const SamplingDefaults& fallback);
// The first value that validate() would refuse, named.
Status validate(const SamplingDefaults& defaults);

// The limits that validate() applies; those of the token lists bound the work of one step.
struct SamplingLimits {
  static constexpr double kTemperature = 2;
  static constexpr double kRepetitionPenaltyLow = 0.01, kRepetitionPenaltyHigh = 100;
  static constexpr double kPenalty = 2;  // presence and frequency, either sign
  static constexpr double kBias = 100;   // either sign
  static constexpr double kLengthPenalty = 10;
  static constexpr double kBeta = 10;
  static constexpr int kSequences = 128;  // n, best_of, beam width, candidates of contrastive search
  static constexpr int kMaxTokens = 1 << 24;
  static constexpr int kLogprobs = 20;
  static constexpr int kBiases = 1024;
  static constexpr int kStopTokens = 128;
  static constexpr int kBadWords = 128;
  static constexpr int kBadWordTokens = 1024;  // in all bad words together
};

// Everything that must hold before a request enters the scheduler; `vocab` is the width of a logits row. The
// error names field, value and limit.
Status validate(const SamplingParams& params, int vocab);

// Sequences that run at once for one prompt: choices, beams, or the candidates of a contrastive search.
int sequence_count(const SamplingParams& params);

// Whether a token of it can only be chosen by the host, from the whole row of logits: nothing of a sequence is then run
// ahead of a token that the host has not seen.
bool needs_host_sampling(const SamplingParams& params);

// The filters of the methods that draw tokens; null for those that search.
const Sampling* sampling_of(const SamplingParams& params);

}  // namespace sluice::request
