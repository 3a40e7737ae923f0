// One token from each row of logits (kernels/draw.h says how). A block of 1,024 threads has one row; thread t looks at
// elements 8 (v · 1,024 + t) + 0..7. The row is read once for its largest element, once to count elements by value (bf16
// has few values) from the largest down, which gives the cuts of top-k and top-p, and once for the pick; once more where
// neither top-k nor a floor bounds the weights, and four times more for a cut below the values counted, by four bits of
// their order at a time. It comes from the L2 all but the first time. Sums are taken in a fixed order, so a row gives
// the same token wherever it stands.
#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"
#include "kernels/draw.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 16;
constexpr int64_t kTile = int64_t{kThreads} * 8;

constexpr uint32_t kSteps = 2 * kThreads;  // keys from the largest down that are counted one by one

struct Shared {
  uint32_t steps[kSteps];  // elements of each key, from the row's largest key down
  int32_t count_cut, mass_cut;
  double mass_above;
  double bins[kWarps][kBins];
  double totals[kBins];
  double sums[kWarps];
  float best[kWarps];
  int32_t at[kWarps];
  int32_t counts[kWarps];
  int32_t bad, token;
};

struct Row {
  const bf16* data;
  int64_t width;
  float largest, scale;  // weight of v: 2^((v - largest) * scale)

  __device__ float weight(float v) const { return exp2f((v - largest) * scale); }
};

// 16 bits in the order of the values; both zeros are one key.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f) >> 16;
  return (bits & 0x8000u) != 0 ? ~bits & 0xffffu : bits | 0x8000u;
}

// Eight elements from `first` on; how many there are. Ordinary loads: several may be on their way at once, and none
// passes the wait at the kernel's start.
template <bool Vector>
__device__ __forceinline__ int fetch(const Row& row, int64_t first, float* f) {
  if constexpr (Vector) {
    if (first >= row.width) return 0;
    unpack8(*reinterpret_cast<const uint4*>(row.data + first), f);
    return 8;
  } else {
    const int count = static_cast<int>(first >= row.width      ? 0
                                       : row.width - first < 8 ? row.width - first
                                                               : 8);
    for (int j = 0; j < count; ++j) f[j] = __bfloat162float(row.data[first + j]);
    return count;
  }
}

template <bool Vector, class Look>
__device__ __forceinline__ void look_at(const Row& row, int64_t tile, Look look) {
  float f[8];
  const int64_t first = tile + threadIdx.x * 8;
  const int count = fetch<Vector>(row, first, f);
  look(first, count, f);
}

// Four tiles' loads are on their way together.
template <bool Vector, class Look>
__device__ __forceinline__ void scan(const Row& row, Look look) {
  constexpr int kAhead = 4;
  for (int64_t tile = 0; tile < row.width; tile += kAhead * kTile) {
    float f[kAhead][8];
    int count[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) count[a] = fetch<Vector>(row, tile + a * kTile + threadIdx.x * 8, f[a]);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) look(tile + a * kTile + threadIdx.x * 8, count[a], f[a]);
  }
}

__device__ double block_sum(double v, Shared& s) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = v;
  __syncthreads();
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += s.sums[w];
  return total;
}

// What the threads before this one have; `total` is what all have.
template <class T>
__device__ T sum_before(T mine, T* warps, T& total) {
  T inclusive = mine;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int o = 1; o < 32; o *= 2) {
    const T other = __shfl_up_sync(0xffffffffu, inclusive, o);
    if (lane >= o) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += warps[w];
  }
  return before + inclusive - mine;
}

// Largest element and the first place of it; whether anything is NaN or +Inf.
template <bool Vector>
__device__ void find_largest(Row& row, Shared& s) {
  float best = -INFINITY;
  int32_t at = INT32_MAX;
  bool bad = false;
  scan<Vector>(row, [&](int64_t first, int count, const float* f) {
    for (int j = 0; j < count; ++j) {
      bad |= !(f[j] < INFINITY);
      if (f[j] > best) best = f[j], at = static_cast<int32_t>(first) + j;
    }
  });
  const auto take = [&](float v, int32_t i) {
    if (v > best || (v == best && i < at)) best = v, at = i;
  };
  for (int o = 16; o > 0; o >>= 1)
    take(__shfl_xor_sync(0xffffffffu, best, o), __shfl_xor_sync(0xffffffffu, at, o));
  if (threadIdx.x == 0) s.bad = 0;
  __syncthreads();
  if (bad) s.bad = 1;
  if (threadIdx.x % 32 == 0) s.best[threadIdx.x / 32] = best, s.at[threadIdx.x / 32] = at;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) take(s.best[w], s.at[w]);
  row.largest = best;
  if (threadIdx.x == 0) s.token = at;
  __syncthreads();
}

// The largest key from which on upwards the amounts reach `goal`, and what lies above it. The amount of an element is
// its weight, or one; elements under `floor` have none.
struct Cut {
  uint32_t key = 0;
  double above = 0;
};
template <bool Vector, bool Weights>
__device__ Cut find_cut(const Row& row, float floor, double goal, Shared& s) {
  Cut cut;
  for (int shift = 12; shift >= 0; shift -= 4) {
    float bins[kBins] = {};
    scan<Vector>(row, [&](int64_t, int count, const float* f) {
      for (int j = 0; j < count; ++j) {
        const uint32_t key = ordered(f[j]);
        if (f[j] < floor || key >> (shift + 4) != cut.key) continue;
        const float amount = Weights ? row.weight(f[j]) : 1.0f;
        const uint32_t bin = key >> shift & 15u;
#pragma unroll
        for (uint32_t b = 0; b < kBins; ++b) bins[b] += b == bin ? amount : 0.0f;
      }
    });
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kBins; ++b) {
      const float sum = warp_sum(bins[b]);
      if (threadIdx.x % 32 == 0) s.bins[threadIdx.x / 32][b] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kBins) {
      double total = 0;
      for (int w = 0; w < kWarps; ++w) total += s.bins[w][threadIdx.x];
      s.totals[threadIdx.x] = total;
    }
    __syncthreads();
    int chosen = -1;
    double sum = cut.above, above = cut.above;
    for (int b = kBins - 1; b >= 0; --b) {
      if (s.totals[b] == 0) continue;
      chosen = b;
      above = sum;
      sum += s.totals[b];
      if (sum >= goal) break;
    }
    cut.key = cut.key << 4 | static_cast<uint32_t>(chosen < 0 ? 0 : chosen);
    cut.above = above;
  }
  return cut;
}

__device__ float value_of(uint32_t key) {
  const uint32_t bits = (key & 0x8000u) != 0 ? key & 0x7fffu : ~key & 0xffffu;
  return __uint_as_float(bits << 16);
}

// Elements by key, from the largest key down, as far as the table goes.
template <bool Vector>
__device__ void count_steps(const Row& row, Shared& s) {
  for (uint32_t i = threadIdx.x; i < kSteps; i += kThreads) s.steps[i] = 0;
  if (threadIdx.x == 0) s.count_cut = s.mass_cut = -1;
  __syncthreads();
  const uint32_t top = ordered(row.largest);
  scan<Vector>(row, [&](int64_t, int count, const float* f) {
    for (int j = 0; j < count; ++j) {
      const uint32_t step = top - ordered(f[j]);
      if (step < kSteps) atomicAdd(&s.steps[step], 1u);
    }
  });
  __syncthreads();
}

__device__ float step_value(const Row& row, int32_t step) {
  return value_of(ordered(row.largest) - static_cast<uint32_t>(step));
}

// The step at which `wanted` elements are reached; -1: not in the table.
__device__ int32_t count_cut(int32_t wanted, Shared& s) {
  const int32_t first = static_cast<int32_t>(threadIdx.x) * 2;
  const auto mine = static_cast<int32_t>(s.steps[first] + s.steps[first + 1]);
  int32_t total = 0;
  const int32_t before = sum_before(mine, s.counts, total);
  if (before < wanted && before + mine >= wanted)
    s.count_cut = before + static_cast<int32_t>(s.steps[first]) >= wanted ? first : first + 1;
  __syncthreads();
  return s.count_cut;
}

// The weight of all elements of at least `floor` in the table; with a goal also the step at which it is reached, and
// the weight above that.
__device__ double mass_cut(const Row& row, float floor, double goal, Shared& s) {
  const int32_t first = static_cast<int32_t>(threadIdx.x) * 2;
  double mine[2];
  for (int i = 0; i < 2; ++i) {
    const uint32_t count = s.steps[first + i];
    const float value = count > 0 ? step_value(row, first + i) : 0.0f;
    mine[i] = count > 0 && value >= floor ? static_cast<double>(count) * row.weight(value) : 0.0;
  }
  double total = 0;
  double before = sum_before(mine[0] + mine[1], s.sums, total);
  for (int i = 0; i < 2; ++i, before += mine[i - 1]) {
    if (mine[i] > 0 && before < goal && before + mine[i] >= goal) {
      s.mass_cut = first + i;
      s.mass_above = before;
    }
  }
  __syncthreads();
  return total;
}

// What is left of the row after the filters: elements of at least `floor`, of key `key` only the first `ties`.
struct Kept {
  float floor = -INFINITY;
  uint32_t key = 0;
  int32_t ties = INT32_MAX;
  double total = 0;
};

template <bool Vector>
__device__ Kept filter(const Row& row, const DrawRow& how, Shared& s) {
  Kept kept;
  kept.floor = row.largest + how.floor;
  count_steps<Vector>(row, s);
  if (how.top_k > 0 && how.top_k < row.width) {
    const int32_t step = count_cut(how.top_k, s);
    const float least = step >= 0 ? step_value(row, step)
                                  : value_of(find_cut<Vector, false>(row, -INFINITY, how.top_k, s).key);
    kept.floor = fmaxf(kept.floor, least);
  }
  const uint32_t top = ordered(row.largest);
  const bool in_table = top >= kSteps && kept.floor >= value_of(top - kSteps + 1);
  if (in_table) {
    kept.total = mass_cut(row, kept.floor, INFINITY, s);
  } else {
    float mine = 0;
    scan<Vector>(row, [&](int64_t, int count, const float* f) {
      for (int j = 0; j < count; ++j)
        if (f[j] >= kept.floor) mine += row.weight(f[j]);
    });
    kept.total = block_sum(mine, s);
  }
  if (how.top_p < 1.0f) {
    const double goal = static_cast<double>(how.top_p) * kept.total;
    mass_cut(row, kept.floor, goal, s);
    Cut cut{top - static_cast<uint32_t>(max(s.mass_cut, 0)), s.mass_above};
    if (s.mass_cut < 0) cut = find_cut<Vector, true>(row, kept.floor, goal, s);
    const double each = row.weight(value_of(cut.key));
    const double ties = each > 0 ? ceil((goal - cut.above) / each) : 1;
    kept.key = cut.key;
    kept.ties = static_cast<int32_t>(fmin(fmax(ties, 1.0), 1e9));
    kept.floor = fmaxf(kept.floor, value_of(cut.key));
    kept.total = cut.above + kept.ties * each;
  }
  return kept;
}

// The first token at which the sum of kept weights exceeds `target`; the last of any weight where rounding keeps the
// sum below. Ends with the token in s.token.
template <bool Vector>
__device__ void pick(const Row& row, const Kept& kept, double target, Shared& s) {
  double running = 0;
  int32_t ties_seen = 0, last = -1;
  bool found = false;
  for (int64_t tile = 0; tile < row.width && !found; tile += kTile) {
    look_at<Vector>(row, tile, [&](int64_t first, int count, const float* f) {
      int32_t ties = 0, all_ties = 0, rank = 0;
      const bool limited = kept.ties != INT32_MAX;
      if (limited) {
        for (int j = 0; j < count; ++j) ties += ordered(f[j]) == kept.key ? 1 : 0;
        rank = ties_seen + sum_before(ties, s.counts, all_ties);
        ties_seen += all_ties;
      }
      float weights[8];
      double mine = 0, total = 0;
      for (int j = 0; j < count; ++j) {
        bool in = f[j] >= kept.floor;
        if (limited && ordered(f[j]) == kept.key) in = rank++ < kept.ties;
        weights[j] = in ? row.weight(f[j]) : 0.0f;
        mine += weights[j];
        if (weights[j] > 0) last = static_cast<int32_t>(first) + j;
      }
      double sum = running + sum_before(mine, s.sums, total);
      found = running + total > target;
      if (sum <= target && sum + mine > target) {
        int32_t token = last;
        for (int j = count - 1; j >= 0; --j) {
          double before = sum;
          for (int i = 0; i < j; ++i) before += weights[i];
          if (weights[j] > 0 && before + weights[j] > target) token = static_cast<int32_t>(first) + j;
        }
        s.token = token;
      }
      running += total;
    });
  }
  __syncthreads();
  if (found) return;
  for (int o = 16; o > 0; o >>= 1) last = max(last, __shfl_xor_sync(0xffffffffu, last, o));
  if (threadIdx.x % 32 == 0) s.counts[threadIdx.x / 32] = last;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) last = max(last, s.counts[w]);
  if (threadIdx.x == 0 && last >= 0) s.token = last;
  __syncthreads();
}

// Log-probabilities of the row as it is, of the token in s.token and of the likeliest.
template <bool Vector>
__device__ void report(Row row, int wanted, DrawnToken& out, Shared& s) {
  constexpr float kLog2E = 1.44269504f;
  row.scale = kLog2E;
  float mine = 0;
  scan<Vector>(row, [&](int64_t, int count, const float* f) {
    for (int j = 0; j < count; ++j) mine += row.weight(f[j]);
  });
  const float log_total = static_cast<float>(log(block_sum(mine, s)));
  if (threadIdx.x == 0) out.logprob = __bfloat162float(row.data[s.token]) - row.largest - log_total;
  const int top = static_cast<int>(min(static_cast<int64_t>(min(wanted, DrawnToken::kTop)), row.width));
  if (threadIdx.x == 0) out.top = top;
  if (top == 0) return;
  const Cut cut = find_cut<Vector, false>(row, -INFINITY, top, s);
  const int above = static_cast<int>(cut.above);
  int32_t seen = 0, seen_equal = 0;
  for (int64_t tile = 0; tile < row.width; tile += kTile) {
    look_at<Vector>(row, tile, [&](int64_t first, int count, const float* f) {
      int32_t greater = 0, equal = 0, all = 0, all_equal = 0;
      for (int j = 0; j < count; ++j) {
        greater += ordered(f[j]) > cut.key ? 1 : 0;
        equal += ordered(f[j]) == cut.key ? 1 : 0;
      }
      int32_t place = seen + sum_before(greater, s.counts, all);
      int32_t equal_place = above + seen_equal + sum_before(equal, s.counts, all_equal);
      for (int j = 0; j < count; ++j) {
        const uint32_t key = ordered(f[j]);
        if (key < cut.key) continue;
        const int32_t to = key > cut.key ? place++ : equal_place++;
        if (to >= top) continue;
        out.top_tokens[to] = static_cast<int32_t>(first) + j;
        out.top_logprobs[to] = f[j] - row.largest - log_total;
      }
      seen += all;
      seen_equal += all_equal;
    });
  }
}

template <bool Vector>
__global__ void __launch_bounds__(kThreads) draw_kernel(const DrawParams p) {
  __shared__ Shared s;
  allow_dependents();
  wait_for_producer();
  const int64_t index = blockIdx.x;
  const DrawRow how = static_cast<const DrawRow*>(p.rows)[index];
  DrawnToken& out = static_cast<DrawnToken*>(p.out)[index];
  Row row{static_cast<const bf16*>(p.logits.data) + index * p.logits.stride_n, p.logits.dim, 0.0f,
          how.inverse_temperature * 1.44269504f};
  find_largest<Vector>(row, s);
  const int32_t status = s.bad != 0                 ? DrawnToken::NotFinite
                         : row.largest == -INFINITY ? DrawnToken::Nothing
                                                    : DrawnToken::Drawn;
  if (threadIdx.x == 0) out.status = status, out.logprob = 0.0f, out.top = 0;
  if (status != DrawnToken::Drawn) {
    if (threadIdx.x == 0) out.token = p.slots[how.slot] = 0;
    return;
  }
  if (how.inverse_temperature > 0.0f) {
    const Kept kept = filter<Vector>(row, how, s);
    pick<Vector>(row, kept, how.uniform * kept.total, s);
  }
  if (how.logprobs >= 0) report<Vector>(row, how.logprobs, out, s);
  if (threadIdx.x == 0) out.token = p.slots[how.slot] = s.token;
}

}  // namespace

void launch_draw(const DrawParams& p, Stream stream) {
  if (p.logits.n == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(p.logits.n)), dim3(kThreads)};
  const bool vector = p.logits.dim % 8 == 0 && p.logits.stride_n % 8 == 0 && aligned16(p.logits.data);
  launch("draw", vector ? draw_kernel<true> : draw_kernel<false>, grid, stream, p);
}

}  // namespace sluice::kernels::cuda
