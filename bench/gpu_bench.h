// What the GPU's benchmark programs share: the clock, and the end of main().
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>

namespace sluice::bench {

// What an H200 can do at most, measured: plain reads of device memory, and a large bf16 GEMM.
inline constexpr double kBytesPerSecond = 4.6e12, kOperationsPerSecond = 790e12;

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The exit code of `body`; 3, and the message on stderr, where it throws.
template <class Body>
int run_reporting(Body body) {
  try {
    return body();
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 3;
  }
}

}  // namespace sluice::bench
