#include "kernels/cpu/simd/features.h"

#include <cstdint>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice::kernels::cpu {

#if defined(__aarch64__)

ArmFeatures arm_features() {
  // Bits of the Linux AT_HWCAP words; older system headers lack the names.
  constexpr unsigned long kDotprod = 1ul << 20;
  constexpr unsigned long kI8mm = 1ul << 13;
  constexpr unsigned long kBf16 = 1ul << 14;
  const unsigned long first = getauxval(AT_HWCAP);
  const unsigned long second = getauxval(AT_HWCAP2);
  return {(first & kDotprod) != 0, (second & kI8mm) != 0, (second & kBf16) != 0};
}

X86Features x86_features() {
  return {};
}

#elif defined(__x86_64__)

namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// Zero where the leaf does not exist.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool bit(uint32_t word, int index) {
  return ((word >> index) & 1u) != 0;
}

// The register sets that the system saves on a switch of threads (XCR0). Needs OSXSAVE.
uint64_t saved_state() {
  uint32_t low;
  uint32_t high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Tile registers are large: the system gives their state to processes that ask for it.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  static const bool granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

}  // namespace

ArmFeatures arm_features() {
  return {};
}

X86Features x86_features() {
  const Registers one = cpuid(1, 0);
  const bool fma = bit(one.c, 12), osxsave = bit(one.c, 27), avx = bit(one.c, 28), f16c = bit(one.c, 29);
  if (!osxsave || !avx) return {};
  const uint64_t state = saved_state();
  constexpr uint64_t kYmm = 0x6;          // SSE and AVX registers
  constexpr uint64_t kZmm = kYmm | 0xe0;  // and masks, upper halves, upper sixteen
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  X86Features features;
  features.avx2 = fma && f16c && bit(seven.b, 5) && (state & kYmm) == kYmm;
  features.avx512 = features.avx2 && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) &&
                    bit(seven.b, 31) && (state & kZmm) == kZmm;
  features.avx512_vnni = features.avx512 && bit(seven.c, 11);
  features.avx512_bf16 = features.avx512_vnni && bit(seven_one.a, 5);
  constexpr uint64_t kTiles = 0x60000;  // their configuration and data
  const bool tiles = bit(seven.d, 24) && bit(seven.d, 25) && bit(seven.d, 22) && (state & kTiles) == kTiles;
  features.amx = features.avx512_bf16 && tiles && may_use_tiles();
  return features;
}

#else

ArmFeatures arm_features() {
  return {};
}
X86Features x86_features() {
  return {};
}

#endif

}  // namespace sluice::kernels::cpu
