// What somebody wants of the model, as the scheduler sees it: tokens in, tokens or a vector out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "request/gate.h"
#include "request/prompt_input.h"
#include "request/sampling_params.h"

namespace sluice::request {

using RequestId = StrongId<struct RequestTag, uint64_t>;

// One vector for the whole prompt, made of the model's hidden states after its last norm.
struct Pooling {
  enum class Of : uint8_t {
    Mean,  // of all positions, each with the same weight
    Last,  // position: of a causal model the only one that has seen the whole prompt
  };
  Of of = Of::Mean;
  bool normalize = true;  // to Euclidean length 1
};

using Task = std::variant<SamplingParams, Pooling>;

struct Request {
  RequestId id;
  std::string client;  // whose share of the machine it uses
  double weight = 1;   // of the client, above 0: its share is in proportion
  int priority = 0;    // higher goes first among the client's own
  std::vector<Token> prompt;
  std::vector<EmbeddingSpan> spans;      // of the prompt, in order, apart from each other
  std::vector<EmbeddingSource> sources;  // one for each span; none where the executor makes embeddings up
  Positions positions;
  Task task;
  std::string cache_salt;  // only requests with the same salt share cached prefixes
  TimePoint arrival{};
  std::optional<TimePoint> first_token_by;  // a deadline: requests of a client go by slack
  // What its first token waits for; null: nothing. Stays in this process: who gets the request elsewhere sees it open.
  std::shared_ptr<const Gate> gate;

  const Pooling* pooling() const { return std::get_if<Pooling>(&task); }
  // REQUIRES: it asks for tokens.
  const SamplingParams& sampling() const { return std::get<SamplingParams>(task); }
  SamplingParams& sampling() { return std::get<SamplingParams>(task); }
};

// Everything that must hold before a request's task enters the scheduler; see validate(SamplingParams).
Status validate(const Task& task, int vocab);
// The spans and positions of a prompt: what must hold before the request enters the scheduler.
Status validate_input(const Request& request);
// Sequences that run at once for the prompt.
int sequence_count(const Request& request);
// Most tokens that one sequence generates; 0 where a vector is wanted.
int max_tokens(const Request& request);
// Whether its sequences move together, by what the executor says.
bool is_search(const Request& request);

// Whether the contrast model runs its tokens too.
bool uses_contrast_model(const Request& request);

enum class FinishReason : uint8_t {
  Stop,       // an end token, a stop token or a stop string; or the vector is there
  Length,     // max_tokens
  Cancelled,  // by its client
  Expired,    // its deadline passed
  Error,
};
std::string_view name(FinishReason reason);  // "stop"

}  // namespace sluice::request
