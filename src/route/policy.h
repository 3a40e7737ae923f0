// Which replica gets a prompt: the one where it costs least, of what is not in the KV cache and of what waits before it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"

namespace sluice::route {

// What the router knows about a replica and has to do with it. One thread's.
struct ReplicaState {
  std::string url;  // "http://10.0.0.1:8080"
  bool healthy = false, draining = false;

  // Of its last report; 0 where it gives none.
  int block_size = 0;
  uint64_t version = 0;  // of the keys
  std::string model, kv_model;
  std::string role;  // "prefill", "decode" or "both"; empty: none told
  std::unordered_set<uint64_t> keys;
  int64_t waiting = 0;

  // Blocks of prompts that were sent there and are not reported yet, until when they are believed in.
  std::unordered_map<uint64_t, TimePoint> expected;
  int64_t running = 0;  // requests that the router has there
  double recent = 0;    // sent there, each counting less the longer ago it was; as of recent_at
  TimePoint recent_at{};
  int64_t prefill_tokens =
      0;  // of these, those that were not known to be cached and whose answers have not begun

  uint64_t requests = 0, failures = 0, retries = 0;  // sent there; failed there; sent elsewhere for it
  uint64_t prompt_tokens = 0, cached_tokens = 0;     // as the router expected them
};

// A prompt as replicas with the same model and block size name its blocks.
struct PromptBlocks {
  std::vector<uint64_t> keys;  // of its full blocks, in their order
  int64_t tokens = 0;
};

struct Choice {
  ReplicaState* replica = nullptr;  // null: none can take it
  int64_t cached = 0;               // tokens
};

// Leading blocks of the prompt that the replica has or will have, in tokens.
int64_t cached_tokens(const ReplicaState& replica, const PromptBlocks& prompt, TimePoint now);

// Of those that are healthy, do not drain and are not in `tried`; servers that prefill for others come last. One that has far
// more requests than the others, or got more of late, is left out however much it has cached, so that a popular prefix
// spreads.
Choice choose(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt,
              std::span<const ReplicaState* const> tried, TimePoint now);

// Who shall prefill for a server that decodes, of those with this role; none where there are none.
Choice choose_prefill(std::vector<ReplicaState>& replicas, const PromptBlocks& prompt, TimePoint now);

// A request goes there.
void count_request(ReplicaState& replica, TimePoint now);
// It takes part from now on, as one that has got as many requests as the others in the mean.
void join(std::vector<ReplicaState>& replicas, ReplicaState& joining, TimePoint now);

// The prompt was sent there: its blocks will be there.
void expect(ReplicaState& replica, const PromptBlocks& prompt, TimePoint now);

}  // namespace sluice::route
