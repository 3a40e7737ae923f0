// Chains of independent multiply-and-add instructions, enough of them to cover latency times issue width (4 cycles on
// 2 to 4 pipes), on registers that hold zero. Written as assembly, so that the compiler neither needs the instruction
// set nor drops the work. Tiles of AMX likewise.
// Threads: every thread of the pool runs the same loop. Bytes moved: none. In the read stream each task walks its own
// part of the buffer.
#include "kernels/cpu/peak.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/platform.h"
#include "kernels/cpu/panels/packed_weight.h"
#include "kernels/cpu/simd/features.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int kRuns = 24;
constexpr int kTurns = 1 << 20;
constexpr int kStreamRuns = 10;
constexpr int64_t kStreamBytes = int64_t{512} << 20;  // more than the last caches of large processors

struct Loop {
  void (*run)(int64_t turns);
  int operations;  // of one turn
};

#if defined(__aarch64__)

constexpr int kChains = 16;
enum Instruction : int { kSmmla, kSdot, kSmlal, kBfmmla, kFmla };

// One instruction on each of v0 to v15, with operands v30 and v31; the assembler picks it by its number.
template <int kind>
__attribute__((target("arch=armv8.6-a"))) void repeat(int64_t turns) {
  asm volatile(
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,30,31\n"
      "movi v\\r\\().16b, #0\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
      ".if %c1 == 0\n smmla v\\r\\().4s, v30.16b, v31.16b\n"
      ".elseif %c1 == 1\n sdot v\\r\\().4s, v30.16b, v31.16b\n"
      ".elseif %c1 == 2\n smlal v\\r\\().8h, v30.8b, v31.8b\n"
      ".elseif %c1 == 3\n bfmmla v\\r\\().4s, v30.8h, v31.8h\n"
      ".else\n fmla v\\r\\().4s, v30.4s, v31.4s\n"
      ".endif\n"
      ".endr\n"
      "subs %0, %0, #1\n"
      "b.ne 1b\n"
      : "+r"(turns)
      : "i"(kind)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
        "v30", "v31", "cc");
}

Loop best_loop(Arithmetic arithmetic) {
  const ArmFeatures features = arm_features();
  if (arithmetic == Arithmetic::Int8) {
    if (features.i8mm) return {repeat<kSmmla>, kChains * 64};
    if (features.dotprod) return {repeat<kSdot>, kChains * 32};
    return {repeat<kSmlal>, kChains * 16};
  }
  if (arithmetic == Arithmetic::Bf16 && features.bf16) return {repeat<kBfmmla>, kChains * 32};
  return {repeat<kFmla>, kChains * 8};
}

#elif defined(__x86_64__)

constexpr int kChains = 12;
enum Instruction : int { kDpbusd, kMaddubs512, kMaddubs256, kDpbf16, kFma512, kFma256, kMulAdd128 };

// One instruction (or the short sequence that stands for it) on each of registers 0 to 11, with operands 14 and 15 and
// scratch 13; the assembler picks it by its number.
template <int kind>
void repeat(int64_t turns) {
  asm volatile(
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,13,14,15\n"
      "xorps %%xmm\\r, %%xmm\\r\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
      ".if %c1 == 0\n vpdpbusd %%zmm14, %%zmm15, %%zmm\\r\n"
      ".elseif %c1 == 1\n vpmaddubsw %%zmm14, %%zmm15, %%zmm13\n vpaddw %%zmm13, %%zmm\\r, %%zmm\\r\n"
      ".elseif %c1 == 2\n vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n vpaddw %%ymm13, %%ymm\\r, %%ymm\\r\n"
      ".elseif %c1 == 3\n vdpbf16ps %%zmm14, %%zmm15, %%zmm\\r\n"
      ".elseif %c1 == 4\n vfmadd231ps %%zmm14, %%zmm15, %%zmm\\r\n"
      ".elseif %c1 == 5\n vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r\n"
      ".else\n movaps %%xmm14, %%xmm13\n mulps %%xmm15, %%xmm13\n addps %%xmm13, %%xmm\\r\n"
      ".endif\n"
      ".endr\n"
      "dec %0\n"
      "jne 1b\n"
      ".if %c1 < 6\n vzeroupper\n .endif\n"
      : "+r"(turns)
      : "i"(kind)
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm13", "xmm14", "xmm15", "cc");
}

// What LDTILECFG reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) WholeTiles {
  uint8_t palette = 1;
  uint8_t reserved[15] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr int kTileChains = 6;

// One tile instruction on each of tiles 0 to 5, with operands 6 and 7.
template <bool bf16>
void repeat_tiles(int64_t turns) {
  const WholeTiles config;
  asm volatile(
      "ldtilecfg %2\n"
      ".irp r,0,1,2,3,4,5,6,7\n"
      "tilezero %%tmm\\r\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5\n"
      ".if %c1\n tdpbf16ps %%tmm7, %%tmm6, %%tmm\\r\n"
      ".else\n tdpbssd %%tmm7, %%tmm6, %%tmm\\r\n"
      ".endif\n"
      ".endr\n"
      "dec %0\n"
      "jne 1b\n"
      "tilerelease\n"
      : "+r"(turns)
      : "i"(bf16 ? 1 : 0), "m"(config)
      : "cc");
}

Loop best_loop(Arithmetic arithmetic) {
  const X86Features features = x86_features();
  if (features.amx && arithmetic == Arithmetic::Int8) return {repeat_tiles<false>, kTileChains * 32768};
  if (features.amx && arithmetic == Arithmetic::Bf16) return {repeat_tiles<true>, kTileChains * 16384};
  if (arithmetic == Arithmetic::Int8) {
    if (features.avx512_vnni) return {repeat<kDpbusd>, kChains * 128};
    // Sums stay in 16 bits as long as those of codes of four bits do.
    if (features.avx512) return {repeat<kMaddubs512>, kChains * 128};
    if (features.avx2) return {repeat<kMaddubs256>, kChains * 64};
  }
  if (arithmetic == Arithmetic::Bf16 && features.avx512_bf16) return {repeat<kDpbf16>, kChains * 64};
  if (features.avx512) return {repeat<kFma512>, kChains * 32};
  if (features.avx2) return {repeat<kFma256>, kChains * 16};
  return {repeat<kMulAdd128>, kChains * 8};
}

#else

void repeat(int64_t turns) {
  std::array<float, 32> sums{};
  volatile float factor = 1.0f;
  for (; turns > 0; --turns)
    for (float& sum : sums) sum = sum * factor + factor;
  volatile float sink = std::accumulate(sums.begin(), sums.end(), 0.0f);
  static_cast<void>(sink);
}

Loop best_loop(Arithmetic) {
  return {repeat, 64};
}

#endif

#if defined(__x86_64__)

// 512 bytes a turn in eight chains, 4 KiB asked for ahead.
uint64_t read_wide(std::span<const uint64_t> words) {
  const uint64_t* at = words.data();
  auto turns = static_cast<int64_t>(words.size() / 64);
  asm volatile(
      ".irp r,0,1,2,3,4,5,6,7\n"
      "vpxorq %%zmm\\r, %%zmm\\r, %%zmm\\r\n"
      ".endr\n"
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7\n"
      "prefetcht0 (4096 + 64 * \\r)(%0)\n"
      "vpaddq (64 * \\r)(%0), %%zmm\\r, %%zmm\\r\n"
      ".endr\n"
      "add $512, %0\n"
      "dec %1\n"
      "jne 1b\n"
      "vzeroupper\n"
      : "+r"(at), "+r"(turns)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "cc", "memory");
  return static_cast<uint64_t>(turns);
}

bool reads_wide() {
  return x86_features().avx512;
}

#elif defined(__aarch64__)

// 512 bytes a turn by pairs of vectors. Nothing is asked for ahead: the hardware follows a stream by itself, and slower where
// it is helped.
uint64_t read_wide(std::span<const uint64_t> words) {
  const uint64_t* at = words.data();
  auto turns = static_cast<int64_t>(words.size() / 64);
  asm volatile(
      "1:\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
      "ldp q0, q1, [%0, #(32 * \\r)]\n"
      ".endr\n"
      "add %0, %0, #512\n"
      "subs %1, %1, #1\n"
      "b.ne 1b\n"
      : "+r"(at), "+r"(turns)
      :
      : "v0", "v1", "cc", "memory");
  return static_cast<uint64_t>(turns);
}

bool reads_wide() {
  return true;
}

#else

uint64_t read_wide(std::span<const uint64_t> words) {
  return words.size();
}

bool reads_wide() {
  return false;
}

#endif

// Sum of the words, so that each is read.
uint64_t read_words(std::span<const uint64_t> words) {
  std::array<uint64_t, 8> sums{};
  for (size_t i = 0; i + sums.size() <= words.size(); i += sums.size())
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

// Seconds of work(thread) on all threads at once. Each thread waits for the others before it starts: a pool may give a
// quick thread two tasks, and a machine with two cores would then seem to have one.
double time_together(ThreadPool& pool, FunctionRef<void(int)> work) {
  std::atomic<int> started = 0;
  std::vector<double> seconds(static_cast<size_t>(pool.threads()));
  pool.run(pool.threads(), [&](int thread) {
    ++started;
    while (started < pool.threads()) cpu_relax();
    const TimePoint start = Clock::now();
    work(thread);
    seconds[static_cast<size_t>(thread)] = seconds_since(start);
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

double peak_multiply_rate(Arithmetic arithmetic, ThreadPool& pool) {
  const Loop loop = best_loop(arithmetic);
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double seconds = time_together(pool, [&](int) { loop.run(kTurns); });
    best = std::max(best, double(kTurns) * loop.operations * pool.threads() / seconds);
  }
  return best;
}

double peak_read_rate(ThreadPool& pool) {
  const std::shared_ptr<uint8_t> buffer = PanelMemory().take(kStreamBytes);
  if (buffer == nullptr) return 0;
  // An untouched page is no memory, and lies where the thread runs that touches it first.
  const std::span words(reinterpret_cast<uint64_t*>(buffer.get()), kStreamBytes / sizeof(uint64_t));
  const size_t part = words.size() / static_cast<size_t>(pool.threads()) / 64 * 64;
  pool.run(pool.threads(), [&](int thread) {
    const std::span own = words.subspan(static_cast<size_t>(thread) * part, part);
    std::fill(own.begin(), own.end(), uint64_t{1});
  });
  const auto read = reads_wide() ? read_wide : read_words;
  std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()));
  volatile uint64_t sink = 0;
  double best = 0;
  for (int i = 0; i < kStreamRuns; ++i) {
    const double seconds = time_together(pool, [&](int thread) {
      const auto index = static_cast<size_t>(thread);
      sums[index] = read(words.subspan(index * part, part));
    });
    best = std::max(best, double(part * sizeof(uint64_t)) * pool.threads() / seconds);
    sink = sink + std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  }
  return best;
}

}  // namespace sluice::kernels::cpu
