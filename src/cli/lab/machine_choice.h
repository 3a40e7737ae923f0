// Which machine and which model a verb of the planner means.
#pragma once

#include <string>

#include "base/result.h"
#include "lab/plan/machine.h"
#include "models/model.h"

namespace sluice::cli {

inline constexpr int kVerifyTurns = 3;  // samples of --verify over which the model's steps are spread

// A known machine's name, the file of a profile, "this" or "cuda": what --calibrate measured of the processor and of the GPU.
// Empty: the processor where it was measured, else an H100, which is said on stderr.
Result<lab::Machine> choose_machine(const std::string& device);

// cuda or cuda:N: the GPU of this machine.
bool names_gpu(const std::string& device);

// A config.json, a folder, a file or a name; without its weights.
Result<models::ModelFiles> outline_of(const std::string& reference);

}  // namespace sluice::cli
