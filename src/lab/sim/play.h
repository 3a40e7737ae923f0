// A recorded load played under several scheduling schemes in virtual time, as lanes that a page can draw.
#pragma once

#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/result.h"
#include "lab/load/workload.h"
#include "lab/plan/cost_model.h"
#include "llm/engine_flags.h"

namespace sluice::lab {

// {"requests": [[at, input, output]], "schemes": [{name, about, seconds, tokens_per_s, ttft_p50_s, ttft_p99_s,
// tpot_p50_s, padding, preempted, lanes: [[[begin, end, kind]]]}]}: a lane for each request in order, seconds after the
// start, kind 0 for prefill and 1 for decode. An error names the scheme. REQUIRES: settled flags, requests ordered by
// time.
Result<json::object> play_schemes(const CostModel& model, const llm::EngineFlags& flags,
                                  const std::vector<ListedRequest>& requests, Interrupt* interrupt);

}  // namespace sluice::lab
