// How run and chat choose tokens.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "sched/sampling_params.h"

namespace sluice::cli {

struct SamplingFlags {
  double temperature = 0.8;
  int top_k = 40;
  double top_p = 0.95;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  int64_t seed = -1;    // -1: another one each time
  int max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void declare(OptionSet& options);
  // `room` is the most tokens that fit.
  sched::SamplingParams params(int room) const;
};

}  // namespace sluice::cli
