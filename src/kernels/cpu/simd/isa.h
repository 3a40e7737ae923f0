// The instruction-set levels of the CPU back-end, from the plainest to the richest; each contains those
// before it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/cpu/panels/kernels.h"
#include "kernels/cpu/recurrent/kernels.h"
#include "kernels/cpu/simd/kernel_table.h"

namespace sluice::kernels::cpu {

struct IsaLevel {
  std::string_view name;      // for --isa: "dotprod"
  std::string_view features;  // for reports: "neon+dotprod"
  bool available;             // this machine and its system run it
  const KernelTable& (*table)();
  const PanelKernels& (*panels)();
  const RecurrentKernels& (*recurrent)();
};

// Levels compiled into this program, "scalar" first.
std::vector<IsaLevel> isa_levels();
// Those this machine runs.
std::vector<IsaLevel> available_isa_levels();
// Levels with instructions that this machine lacks in plain loops, for tests: AMX where there is AVX-512 VNNI.
std::vector<IsaLevel> modelled_isa_levels();
// The best one for an empty name. An unknown or unavailable name gives an error that lists the available
// ones.
Result<IsaLevel> find_isa_level(std::string_view name);

}  // namespace sluice::kernels::cpu
