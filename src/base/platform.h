// The only place outside kernels/cpu that asks the compiler which machine this is.
#pragma once

namespace sluice {

// A hint to the core that this is a waiting loop.
inline void cpu_relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("pause" ::: "memory");
#endif
}

inline constexpr const char* kArchitecture =
#if defined(__aarch64__)
    "aarch64";
#elif defined(__x86_64__)
    "x86_64";
#else
    "unknown";
#endif

inline constexpr const char* kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

}  // namespace sluice
