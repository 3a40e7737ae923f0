// Predictions beside what the engine takes on a device, prompts of all lengths included.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/device/engine_run.h"
#include "lab/plan/verify.h"

namespace sluice::lab {

// Every batch at every context of the plan that the run has KV for; the others are named.
Result<std::vector<VerifiedCell>> verify_engine(const Plan& plan, EngineRun& run, int repeat,
                                                const std::function<void(const std::string&)>& progress);

}  // namespace sluice::lab
