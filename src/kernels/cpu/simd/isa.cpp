#include "kernels/cpu/simd/isa.h"

#include <fmt/format.h>

#include "kernels/cpu/simd/features.h"
#include "kernels/cpu/simd/levels.h"

namespace sluice::kernels::cpu {

std::vector<IsaLevel> isa_levels() {
  std::vector<IsaLevel> levels{{"scalar", "scalar", true, scalar_kernels, scalar_panels, scalar_recurrent}};
#if defined(__aarch64__)
  const ArmFeatures arm = arm_features();
  levels.push_back({"neon", "neon", true, neon_kernels, neon_panels, neon_recurrent});
  levels.push_back({"dotprod", "neon+dotprod", arm.dotprod, dotprod_kernels, dotprod_panels, neon_recurrent});
  levels.push_back(
      {"i8mm", "neon+dotprod+i8mm", arm.dotprod && arm.i8mm, i8mm_kernels, i8mm_panels, neon_recurrent});
  levels.push_back({"bf16", "neon+dotprod+i8mm+bf16", arm.dotprod && arm.i8mm && arm.bf16, bf16_kernels,
                    i8mm_panels, neon_recurrent});
#elif defined(__x86_64__)
  const X86Features x86 = x86_features();
  levels.push_back({"avx2", "avx2+fma+f16c", x86.avx2, avx2_kernels, avx2_panels, avx2_recurrent});
#if defined(SLUICE_EMULATED_AVX512)  // a test build: this level is compiled for AVX2
  levels.push_back({"avx512-bf16", "avx512+vnni+bf16 emulated", x86.avx2, avx512_bf16_kernels, avx2_panels,
                    avx2_recurrent});
#else
  levels.push_back({"avx512", "avx512", x86.avx512, avx512_kernels, avx512_panels, avx512_recurrent});
  levels.push_back({"avx512-vnni", "avx512+vnni", x86.avx512_vnni, avx512_vnni_kernels, avx512_vnni_panels,
                    avx512_recurrent});
  levels.push_back({"avx512-bf16", "avx512+vnni+bf16", x86.avx512_bf16, avx512_bf16_kernels,
                    avx512_vnni_panels, avx512_recurrent});
  levels.push_back({"amx", "avx512+vnni+bf16+amx", x86.amx, amx_kernels, amx_panels, avx512_recurrent});
#endif
#endif
  return levels;
}

std::vector<IsaLevel> available_isa_levels() {
  std::vector<IsaLevel> levels = isa_levels();
  std::erase_if(levels, [](const IsaLevel& level) { return !level.available; });
  return levels;
}

std::vector<IsaLevel> modelled_isa_levels() {
#if defined(__x86_64__) && !defined(SLUICE_EMULATED_AVX512)
  if (x86_features().avx512_vnni)
    return {
        {"amx-model", "avx512+vnni+amx model", true, amx_model_kernels, amx_model_panels, avx512_recurrent}};
#endif
  return {};
}

Result<IsaLevel> find_isa_level(std::string_view name) {
  const std::vector<IsaLevel> available = available_isa_levels();
  if (name.empty()) return available.back();
  std::string names;
  for (const IsaLevel& level : available) {
    if (level.name == name) return level;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", level.name);
  }
  for (const IsaLevel& level : isa_levels()) {
    if (level.name != name) continue;
    return Error{ErrorCode::Unavailable,
                 fmt::format("isa {}: not on this machine, which has {}", name, names)};
  }
  return Error{ErrorCode::InvalidArgument, fmt::format("isa {}: unknown; this machine has {}", name, names)};
}

}  // namespace sluice::kernels::cpu
