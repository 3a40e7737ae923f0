// Layers that keep a state: element-wise products, causal convolutions, the gated delta rule, state-space scans.
//
// Tokens of a sequence run one after the other with the state in registers, so that a token's bits do not depend on where a
// step began. The state is read once per step and written once for each save. A convolution has a thread for each channel.
// The delta rule has four lanes for each column of a head's state [key_dim, value_dim]: column j depends on the others
// through q, k and the gates alone, which lie in shared memory. A scan has eight lanes for each row of a head's state
// [head_dim, state_dim], whose rows are independent. Bytes: the state twice per step; at one token a sequence this is the
// whole traffic. The share of the limit has not been measured.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/recurrent/recurrent_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float softplus_of(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}
__device__ __forceinline__ float sigmoid_of(float x) {
  return 1.0f / (1.0f + expf(-x));
}

template <class T>
__device__ __forceinline__ float element(const View& v, int64_t row, int64_t column) {
  return widen(static_cast<const T*>(v.data)[row * v.stride_n + column]);
}
template <class T>
__device__ __forceinline__ void set_element(const View& v, int64_t row, int64_t column, float value) {
  static_cast<T*>(v.data)[row * v.stride_n + column] = narrow<T>(value);
}

// The tokens of a sequence between its saves.
struct Walk {
  int32_t begin, end;           // rows of the step
  int32_t save, last_save;      // of the list
  const float* from = nullptr;  // null: zeros

  __device__ Walk(const StatesView& s, int sequence)
      : begin(s.query_begin[sequence]),
        end(s.query_begin[sequence + 1]),
        save(s.save_begin[sequence]),
        last_save(s.save_begin[sequence + 1]) {
    if (s.from[sequence] >= 0) from = s.data + s.from[sequence] * s.stride;
  }
  // Where the state behind row `row` goes; null: nowhere. Moves on to the next save.
  __device__ float* target(const StatesView& s, int32_t row) {
    if (save >= last_save || s.saves[2 * save] != row - begin + 1) return nullptr;
    return s.data + s.saves[2 * save++ + 1] * s.stride;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) multiply_kernel(const MultiplyParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.a.dim) return;
  for (int64_t row = blockIdx.y; row < p.a.n; row += gridDim.y)
    set_element<T>(p.out, row, i, element<T>(p.a, row, i) * element<T>(p.b, row, i));
}

// grid: (pieces of the channels, sequences)
template <class T, int kTaps>
__global__ void __launch_bounds__(kThreads) conv_kernel(const ConvParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x, channels = p.x.dim;
  if (channel >= channels) return;
  Walk walk(p.states, static_cast<int>(blockIdx.y));
  const int kept = p.taps - 1;
  // The last `kept` rows end at window[kTaps - 2]; what a shorter kernel has before them is zero.
  float window[kTaps], kernel[kTaps];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    const int tap = i - (kTaps - p.taps), row = i - (kTaps - 1 - kept);
    kernel[i] = tap >= 0 ? p.kernel[tap * channels + channel] : 0.0f;
    window[i] =
        i < kTaps - 1 && row >= 0 && walk.from != nullptr ? walk.from[row * channels + channel] : 0.0f;
  }
  const float bias = p.bias != nullptr ? p.bias[channel] : 0.0f;
  for (int32_t row = walk.begin; row < walk.end; ++row) {
    window[kTaps - 1] = element<T>(p.x, row, channel);
    float sum = bias;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) sum = fmaf(kernel[i], window[i], sum);
    set_element<T>(p.out, row, channel, p.silu != 0 ? sum * sigmoid_of(sum) : sum);
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) window[i] = window[i + 1];
    float* to = walk.target(p.states, row);
    if (to == nullptr) continue;
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) {
      const int kept_row = i - (kTaps - 1 - kept);
      if (kept_row >= 0) to[kept_row * channels + channel] = window[i];
    }
  }
}

// Four lanes of a warp, eight apart, share a column: lane part has rows part, part + 4, ...
constexpr int kParts = 4, kColumns = kThreads / kParts;

__device__ __forceinline__ float sum_parts(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 8);
  return v + __shfl_xor_sync(0xffffffffu, v, 16);
}

// q and k of one token and its decays, behind zeros up to whole rows of every lane.
template <int kRows>
struct DeltaShared {
  float q[kRows * kParts], k[kRows * kParts], decay[kRows * kParts];
};

// Reads a token's q and k and makes them unit vectors, q times key_dim^-1/2. Every warp sums all of them, in one order.
template <class T, int kRows>
__device__ void load_token(const DeltaParams& p, DeltaShared<kRows>& s, int64_t row, int head) {
  const int key_head = p.tiled != 0 ? head % p.key_heads : head / (p.value_heads / p.key_heads);
  const int64_t q = int64_t{key_head} * p.key_dim, k = q + int64_t{p.key_heads} * p.key_dim;
  const int lane = threadIdx.x % 32;
  float q_square = 0.0f, k_square = 0.0f;
  for (int i = lane; i < p.key_dim; i += 32) {
    const float a = element<T>(p.qkv, row, q + i), b = element<T>(p.qkv, row, k + i);
    q_square = fmaf(a, a, q_square);
    k_square = fmaf(b, b, k_square);
  }
  const float q_scale = rsqrtf(static_cast<float>(p.key_dim)) / sqrtf(warp_sum(q_square) + p.length_eps);
  const float k_scale = 1.0f / sqrtf(warp_sum(k_square) + p.length_eps);
  for (int i = threadIdx.x; i < kRows * kParts; i += kThreads) {
    const bool inside = i < p.key_dim;
    s.q[i] = inside ? element<T>(p.qkv, row, q + i) * q_scale : 0.0f;
    s.k[i] = inside ? element<T>(p.qkv, row, k + i) * k_scale : 0.0f;
    const int64_t place = p.channel_decay != 0 ? int64_t{head} * p.key_dim + i : head;
    s.decay[i] = 0.0f;
    if (!inside) continue;
    const float gate =
        element<T>(p.decay, row, place) + (p.decay_bias != nullptr ? p.decay_bias[place] : 0.0f);
    s.decay[i] = expf(p.rate[head] * softplus_of(gate));
  }
}

// grid: (pieces of 32 columns, value heads, sequences)
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads) delta_kernel(const DeltaParams p) {
  __shared__ DeltaShared<kRows> s;
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % 32, part = lane / 8, head = static_cast<int>(blockIdx.y);
  const int column =
      static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x) / 32 * 8 + lane % 8;
  const bool active = column < p.value_dim;
  Walk walk(p.states, static_cast<int>(blockIdx.z));
  const int64_t piece = int64_t{head} * p.key_dim * p.value_dim + column;
  float state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = r * kParts + part;
    state[r] =
        active && i < p.key_dim && walk.from != nullptr ? walk.from[piece + int64_t{i} * p.value_dim] : 0.0f;
  }
  const int64_t values = int64_t{2} * p.key_heads * p.key_dim + int64_t{head} * p.value_dim;
  for (int32_t row = walk.begin; row < walk.end; ++row) {
    load_token<T>(p, s, row, head);
    __syncthreads();
    float known = 0.0f, sum = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = r * kParts + part;
      state[r] *= s.decay[i];
      known = fmaf(state[r], s.k[i], known);
    }
    known = sum_parts(known);
    const float beta = p.beta_scale * sigmoid_of(element<T>(p.beta, row, head));
    const float delta = active ? (element<T>(p.qkv, row, values + column) - known) * beta : 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = r * kParts + part;
      state[r] = fmaf(s.k[i], delta, state[r]);
      sum = fmaf(state[r], s.q[i], sum);
    }
    sum = sum_parts(sum);
    if (active && part == 0) set_element<T>(p.out, row, int64_t{head} * p.value_dim + column, sum);
    __syncthreads();
    float* to = walk.target(p.states, row);
    if (to == nullptr || !active) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = r * kParts + part;
      if (i < p.key_dim) to[piece + int64_t{i} * p.value_dim] = state[r];
    }
  }
}

constexpr int kScanLanes = 8, kScanRows = kThreads / kScanLanes;

// grid: (pieces of 16 rows of all heads, sequences)
template <class T, int kStates>
__global__ void __launch_bounds__(kThreads) scan_kernel(const ScanParams p) {
  allow_dependents();
  wait_for_producer();
  const int lane = threadIdx.x % kScanLanes;
  const int64_t rows = int64_t{p.heads} * p.head_dim;
  const int64_t asked = int64_t{blockIdx.x} * kScanRows + threadIdx.x / kScanLanes;
  const bool active = asked < rows;  // the others go along: shuffles take whole warps
  const int64_t place = active ? asked : rows - 1;
  const int head = static_cast<int>(place / p.head_dim);
  const int64_t group = int64_t{head / (p.heads / p.groups)} * p.state_dim;
  Walk walk(p.states, static_cast<int>(blockIdx.y));
  const float* rate = p.rate + int64_t{head} * (p.rate_per_state != 0 ? p.state_dim : 1);
  const float bias = p.step_bias != nullptr ? p.step_bias[head] : 0.0f, skip = p.skip[head];
  float state[kStates];
#pragma unroll
  for (int r = 0; r < kStates; ++r) {
    const int i = r * kScanLanes + lane;
    state[r] = i < p.state_dim && walk.from != nullptr ? walk.from[place * p.state_dim + i] : 0.0f;
  }
  for (int32_t row = walk.begin; row < walk.end; ++row) {
    const float step =
        fminf(fmaxf(softplus_of(element<T>(p.step, row, head) + bias), p.least_step), p.largest_step);
    const float x = element<T>(p.x, row, place), kept_all = expf(step * rate[0]);
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < kStates; ++r) {
      const int i = r * kScanLanes + lane;
      if (i >= p.state_dim) continue;
      const float kept = p.rate_per_state != 0 ? expf(step * rate[i]) : kept_all;
      state[r] = fmaf(state[r], kept, step * x * element<T>(p.b, row, group + i));
      sum = fmaf(state[r], element<T>(p.c, row, group + i), sum);
    }
#pragma unroll
    for (int o = kScanLanes / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (active && lane == 0) set_element<T>(p.out, row, place, fmaf(skip, x, sum));
    float* to = walk.target(p.states, row);
    if (to == nullptr || !active) continue;
#pragma unroll
    for (int r = 0; r < kStates; ++r) {
      const int i = r * kScanLanes + lane;
      if (i < p.state_dim) to[place * p.state_dim + i] = state[r];
    }
  }
}

dim3 blocks(int64_t x, int64_t y = 1, int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

template <class T, int kRows>
void launch_delta_rows(const DeltaParams& p, Stream stream) {
  launch("delta", delta_kernel<T, kRows>,
         {blocks(ceil_div(p.value_dim, kColumns), p.value_heads, p.states.sequences), dim3(kThreads)}, stream,
         p);
}

template <class T, int kStates>
void launch_scan_states(const ScanParams& p, Stream stream) {
  launch("scan", scan_kernel<T, kStates>,
         {blocks(ceil_div(int64_t{p.heads} * p.head_dim, kScanRows), p.states.sequences), dim3(kThreads)},
         stream, p);
}

}  // namespace

void launch_multiply(const MultiplyParams& p, Stream stream) {
  if (p.a.n == 0) return;
  visit_activations(p.a.type, [&](auto type) {
    launch("multiply", multiply_kernel<decltype(type)>,
           {blocks(ceil_div(p.a.dim, kThreads), p.a.n < 4096 ? p.a.n : 4096), dim3(kThreads)}, stream, p);
  });
}

void launch_conv(const ConvParams& p, Stream stream) {
  if (p.states.sequences == 0) return;
  visit_activations(p.x.type, [&](auto type) {
    using T = decltype(type);
    launch("conv", p.taps <= 4 ? conv_kernel<T, 4> : conv_kernel<T, kMostTaps>,
           {blocks(ceil_div(p.x.dim, kThreads), p.states.sequences), dim3(kThreads)}, stream, p);
  });
}

void launch_delta(const DeltaParams& p, Stream stream) {
  if (p.states.sequences == 0) return;
  visit_activations(p.qkv.type, [&](auto type) {
    using T = decltype(type);
    if (p.key_dim <= 64) return launch_delta_rows<T, 16>(p, stream);
    if (p.key_dim <= 128) return launch_delta_rows<T, 32>(p, stream);
    if (p.key_dim <= 256) return launch_delta_rows<T, 64>(p, stream);
    launch_delta_rows<T, 128>(p, stream);
  });
}

void launch_scan(const ScanParams& p, Stream stream) {
  if (p.states.sequences == 0) return;
  visit_activations(p.x.type, [&](auto type) {
    using T = decltype(type);
    if (p.state_dim <= 16) return launch_scan_states<T, 2>(p, stream);
    if (p.state_dim <= 128) return launch_scan_states<T, 16>(p, stream);
    if (p.state_dim <= 256) return launch_scan_states<T, 32>(p, stream);
    launch_scan_states<T, 128>(p, stream);
  });
}

}  // namespace sluice::kernels::cuda
