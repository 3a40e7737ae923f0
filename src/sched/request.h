// What somebody wants generated, as the scheduler sees it: tokens in, tokens out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "sched/sampling_params.h"

namespace sluice::sched {

using RequestId = StrongId<struct RequestTag, uint64_t>;

struct Request {
  RequestId id;
  std::string client;  // whose share of the machine it uses
  int priority = 0;    // higher goes first; equal ones share fairly between clients
  std::vector<Token> prompt;
  SamplingParams sampling;
  std::string cache_salt;  // only requests with the same salt share cached prefixes
  TimePoint arrival{};
};

enum class FinishReason : uint8_t {
  Stop,       // an end token, a stop token or a stop string
  Length,     // max_tokens
  Cancelled,  // by its client
  Expired,    // its deadline passed
  Error,
};

}  // namespace sluice::sched
