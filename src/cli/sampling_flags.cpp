#include "cli/sampling_flags.h"

#include <algorithm>

namespace sluice::cli {

void SamplingFlags::declare(OptionSet& options) {
  options.add(max_tokens, "max-tokens", "longest answer in tokens, at least 1; -1: until it ends by itself")
      .short_name('n')
      .within(-1, 1 << 24);
  options.add(temperature, "temp", "0: always the likeliest token").within(0, 2);
  options.add(top_k, "top-k", "draw from the k likeliest tokens; 0: all").within(0, 1 << 24);
  options.add(top_p, "top-p", "draw from the likeliest tokens of this mass").within(0.0, 1);
  options.add(min_p, "min-p", "leave out tokens below this share of the likeliest").within(0, 1);
  options.add(repetition_penalty, "repeat-penalty", "over 1: tokens seen before become less likely")
      .within(0.01, 100);
  options.add(seed, "seed", "the same seed gives the same answer; -1: a new one each time")
      .short_name('s')
      .within(-1, 0x1p53);
  options.add(stop, "stop", "end the answer before this text; may be given several times");
  options.add(ignore_eos, "ignore-eos", "go on when the model would end");
}

sched::SamplingParams SamplingFlags::params(int room) const {
  sched::SamplingParams out;
  sched::Sampling sampling{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
  if (seed >= 0) sampling.seed = static_cast<uint64_t>(seed);
  out.method = sampling;
  out.repetition_penalty = repetition_penalty;
  out.ignore_eos = ignore_eos;
  out.max_tokens = max_tokens < 0 ? room : std::min(max_tokens, room);
  return out;
}

}  // namespace sluice::cli
