// What the processor offers and the operating system lets us use.
#pragma once

namespace sluice::kernels::cpu {

struct ArmFeatures {
  bool dotprod = false;
  bool i8mm = false;
  bool bf16 = false;
};

struct X86Features {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, VL and DQ
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx = false;  // tiles of int8 and bf16, with avx512_bf16, and the system's permission for this process
};

// All false on another architecture.
ArmFeatures arm_features();
X86Features x86_features();

}  // namespace sluice::kernels::cpu
