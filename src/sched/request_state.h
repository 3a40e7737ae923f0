// A request inside the scheduler.
#pragma once

#include <algorithm>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "request/request.h"
#include "sched/client_shares.h"

namespace sluice::sched {

// One sequence of a request: a choice, or a lane of a search.
struct SequenceState {
  SeqId seq;
  int choice = 0;
  std::vector<Token> tokens;  // prompt and all tokens known so far; empty before the request first starts
  int computed = 0;           // leading positions whose KV is there once all submitted steps have run
  int pending = 0;            // tokens that submitted steps will add
  int in_flight = 0;          // submitted steps with work of this lane
  std::vector<Token> drafts;  // guesses of the tokens that follow
  bool verifying = false;     // a submitted step has drafts: how many tokens it adds is not known yet
  bool guessed = false;       // drafts came with its last tokens: nothing is run ahead of the next ones
  bool done = false;

  int length() const { return static_cast<int>(tokens.size()) + pending; }
};

enum class Phase : uint8_t {
  Waiting,  // not started
  Running,  // has blocks
  Dropped,  // preempted, blocks given up
  Swapped,  // preempted, blocks on a lower tier
};

inline constexpr int kNoCeiling = std::numeric_limits<int>::max();

struct RequestState {
  std::shared_ptr<const request::Request> request;
  ClientShares::Client* client = nullptr;
  std::vector<SequenceState> lanes;
  SeqId group;            // names the request to the executor: the sequence that was admitted
  int num_sequences = 1;  // sequences that it asks for
  int granted = 0;  // sequences that may run at once, while running; the other lanes wait for those to end
  bool search = false;  // lanes move together: all of them run at once
  bool waits = false;   // nothing is run ahead of a token that is not collected yet
  Phase phase = Phase::Waiting;
  bool known = false;      // to the executor
  bool forked = false;     // every lane has its own table; before, the first one runs for all
  bool distrusts = false;  // takes no content from the prefix cache or a lower tier any more
  bool promised = false;   // its blocks are set aside: never preempted
  int rope_set = 0;        // of its keys
  int ceiling =
      kNoCeiling;  // most positions that its set of rotary frequencies serves; then it is computed again
  int preemptions = 0;
  int cached = 0;            // tokens found in the prefix cache when it first started
  int prompt_read = 0;       // leading positions of the prompt whose outputs have been asked for
  uint64_t order = 0;        // of its first start
  uint64_t last_served = 0;  // number of the last step it had work in
  uint64_t number = 0;       // of its arrival in the queue
  // Where it stands among the requests of its client with the same priority: preempted ones by their start, others by
  // when they should start.
  std::pair<TimePoint, uint64_t> rank;
  bool postponed = false;                 // its last work was not run
  std::optional<TimePoint> passed_since;  // it did not fit when it was its turn, from then on
  std::list<RequestState*>::iterator place,
      age_place;  // in the list of those that run; in the queue by age, while waiting

  bool preempted() const { return phase == Phase::Dropped || phase == Phase::Swapped; }
  // Sequences that have not ended, or will come.
  int live() const {
    if (search || static_cast<int>(lanes.size()) < num_sequences) return num_sequences;
    return static_cast<int>(
        std::count_if(lanes.begin(), lanes.end(), [](const SequenceState& lane) { return !lane.done; }));
  }

  int prompt_size() const { return static_cast<int>(request->prompt.size()); }
  // Tokens of a lane that are known.
  int known_tokens(const SequenceState& lane) const {
    return lane.tokens.empty() ? prompt_size() : static_cast<int>(lane.tokens.size());
  }
  // Lanes exist, or will, that share the prompt: it is computed once, up to its last token.
  bool shares_prompt() const { return lanes.size() > 1 || (num_sequences > 1 && !search); }
  // Leading positions of the prompt whose outputs somebody wants, besides those that are sampled from: for
  // log-probabilities, each about the token after it, or for the mean of hidden states.
  int prompt_outputs() const {
    if (const request::Pooling* pooling = request->pooling())
      return pooling->of == request::Pooling::Of::Mean ? prompt_size() : 0;
    return request->sampling().prompt_logprobs ? prompt_size() - 1 : 0;
  }
  // The first of them that is wanted.
  int first_prompt_output() const {
    return request->pooling() ? 0 : std::max(0, request->sampling().prompt_logprobs_from - 1);
  }
  // Every position of the prompt must run where its output is still to be read, or where the search compares
  // hidden states of the whole context.
  bool may_match() const {
    if (distrusts || prompt_read < prompt_outputs()) return false;
    return request->pooling() ||
           !std::holds_alternative<request::ContrastiveSearch>(request->sampling().method);
  }
  // Most outputs of a lane: tokens, or the one vector.
  int most_outputs() const { return request->pooling() ? 1 : request::max_tokens(*request); }
  // Nothing may be sampled yet.
  bool gated() const { return request->gate && request->gate->state() != request::Gate::State::Open; }
  // How far a lane can run now.
  int target(const SequenceState& lane) const {
    const bool prompt_only = (shares_prompt() && !forked) || gated();
    return prompt_only ? prompt_size() - 1 : std::min(lane.length(), ceiling);
  }
  // All its lanes are longer than its set of rotary frequencies serves.
  bool outgrown() const {
    return std::all_of(lanes.begin(), lanes.end(), [&](const SequenceState& lane) {
      return lane.done || static_cast<int>(lane.tokens.size()) > ceiling;
    });
  }
};

}  // namespace sluice::sched
