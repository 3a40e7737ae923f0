// What this machine's multipliers can do at most, for reports that set a speed beside its limit.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace sluice::kernels::cpu {

// The number formats GEMMs are computed in: quantised blocks as 8-bit integers, bf16 in pairs, all else in f32.
enum class Arithmetic : uint8_t { Int8, Bf16, F32 };

// Operations per second (a multiplication and an addition are two) of the best instruction that the machine has for
// this arithmetic, on all threads of the pool at once, in registers only. The best of
// several runs, since a limit is not lowered by what else the machine does.
double peak_multiply_rate(Arithmetic arithmetic, ThreadPool& pool);

// Bytes per second that all threads read from memory, each in one long stream with prefetch over huge pages, in a buffer
// larger than the caches. The best of several runs. 0 where the system has no memory for it.
double peak_read_rate(ThreadPool& pool);

}  // namespace sluice::kernels::cpu
