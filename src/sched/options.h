// The choices a scheduler is made of. A scheme is a value: the planner reads its fields and never asks for
// its name.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace sluice::sched {

enum class Layout : uint8_t {
  Packed,  // a step computes its tokens
  Padded,  // a step computes a rectangle as wide as its longest piece of work
};

enum class Prefill : uint8_t {
  Mixed,     // prompts and single tokens in one step
  Separate,  // steps of prompts first, then steps of single tokens
};

enum class KvPolicy : uint8_t {
  Preallocate,  // the blocks of prompt and longest answer are set aside when a request starts
  OnDemand,     // blocks are taken as tokens come; where none is left, somebody is preempted
};

enum class Preemption : uint8_t {
  Recompute,  // blocks are dropped and computed again
  Swap,       // blocks go to a lower tier and come back; recompute where it is full
};

inline constexpr Seconds kForever{std::numeric_limits<double>::infinity()};

struct Scheme {
  bool continuous_admission =
      true;  // requests join a running batch; otherwise the batch ends before the next one starts
  bool chunked_prefill =
      true;  // a prompt may be split over steps; otherwise only one that no step could hold is
  bool deliver_per_batch = false;  // answers are delivered when the batch ends
  Seconds max_batch_wait{0};  // how long the oldest waiting request lets a batch fill up before it starts
};

struct NamedScheme {
  std::string_view name;
  Scheme scheme;
  Layout layout;  // the layout people mean by that name
};

// static, dynamic (its patience is the caller's to set), iteration, continuous
//
// A padded iteration is the tensor of a library that knows rectangles only: a prompt that joins makes every row of its
// step as wide as itself, those that run a single token too. With Prefill::Separate joining prompts are padded to one
// another and single tokens not at all. Packed, it is what Orca's selective batching computes.
inline constexpr NamedScheme kSchemes[] = {
    {"static",
     {.continuous_admission = false,
      .chunked_prefill = false,
      .deliver_per_batch = true,
      .max_batch_wait = kForever},
     Layout::Padded},
    {"dynamic",
     {.continuous_admission = false,
      .chunked_prefill = false,
      .deliver_per_batch = true,
      .max_batch_wait = Seconds{0.05}},
     Layout::Padded},
    {"iteration", {.chunked_prefill = false}, Layout::Padded},
    {"continuous", {}, Layout::Packed},
};

Result<NamedScheme> scheme_named(std::string_view name);

// Models whose rotary frequencies depend on the length of the sequence: set 0 up to `limit`, then one for each further
// length, the last for all beyond.
struct RopeSets {
  enum class Outgrown : uint8_t {
    Kept,       // a prompt has the set of its length, a generated token the one of the length it makes
    Recomputed  // a sequence that grows over the limit is computed again with the set of its length
  };
  Outgrown outgrown = Outgrown::Kept;
  int limit = 0;
  int count = 1;

  friend bool operator==(const RopeSets&, const RopeSets&) = default;
  int of(int length) const { return length <= limit ? 0 : std::min(length - limit, count - 1); }
};

// How long prompts may make running answers wait for their next token (the time between tokens): a step that samples for
// somebody takes prompt tokens only as far as it stays below that, by the measured cost of steps.
// A multiple of what a step of the running sequences alone takes; a step costs more than its tokens, so that prompts in many
// small steps cost throughput. So many prompt tokens are taken in any case: fewer make poor use of the weights that are read.
struct TbtOfBatch {
  double stretch = 3;
  int least_prompt_tokens = 64;
  bool bursts = true;  // many prompts at once have steps in which the device runs at full speed
  // Of a step of the running sequences alone, for prompts with pictures beside them: their towers, then their tokens. Where
  // there are more of these prompts than running sequences, as many times that.
  double picture_share = 0.1;
};
struct TbtAny {};  // prompts fill their steps
using TargetTbt = std::variant<TbtOfBatch, TbtAny, Seconds>;

struct SchedulerOptions {
  Scheme scheme;
  Layout layout = Layout::Packed;
  Prefill prefill = Prefill::Mixed;
  KvPolicy kv_policy = KvPolicy::OnDemand;
  Preemption preemption = Preemption::Recompute;
  int max_seqs = 64;            // sequences that run at once; a request counts with all its choices or beams
  int max_step_tokens = 512;    // tokens of a step, padding included
  int max_context = 1 << 20;    // positions of one sequence
  int max_preemptions = 3;      // of one request; then it starts again with all its blocks set aside
  Seconds contended_step{0.5};  // the longest step, as far as is known, while more than one client has work
  TargetTbt target_tbt = TbtOfBatch{};
  // A step that is cut for target_tbt has a multiple of so many tokens where it has that many, and a burst of prompts by
  // TbtOfBatch just that many at least: the device runs at full speed with them. 0: any number, and bursts fill their steps.
  int even_step_tokens = 0;
  bool parts_towers = false;  // the executor runs vision towers in parts beside running answers
  RopeSets rope;
  // Steps that run at the same time, each on one of the stages that the model's layers are cut into: sequences that decode
  // are shared out over so many steps, and none is in a step before its last token is known. 1: steps run one by one.
  int stages = 1;
  bool kv_cache = true;           // off: every token computes its whole sequence again
  std::vector<Token> end_tokens;  // of the model
};

// What makes no sense, named.
Status validate(const SchedulerOptions& options);

}  // namespace sluice::sched
