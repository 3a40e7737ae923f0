// Layers that keep a state: element-wise products, causal convolutions, state-space scans.
//
// Tokens of a sequence run one after the other with the state in registers, so that a token's bits do not depend on where a
// step began. The state is read once per step and written once for each save. A convolution has a thread for each channel;
// of long steps, one for four channels and 32 rows, which finds the rows before its own in x. A scan has eight lanes for
// each row of a head's state [head_dim, state_dim], whose rows are independent.
#include "kernels/cuda/recurrent/recurrent_walk.cuh"

namespace sluice::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) multiply_kernel(const MultiplyParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.a.dim) return;
  for (int64_t row = blockIdx.y; row < p.a.n; row += gridDim.y) {
    const float b = p.b.type == DType::F32 ? element<float>(p.b, row, i) : element<T>(p.b, row, i);
    set_element<T>(p.out, row, i, element<T>(p.a, row, i) * b);
  }
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
    set_element<T>(p.out, row, channel, convolve(kernel, window, bias, p.silu != 0));
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) window[i] = window[i + 1];
    for (float* to; (to = walk.target(p.states, row)) != nullptr;) {
#pragma unroll
      for (int i = 0; i + 1 < kTaps; ++i) {
        const int kept_row = i - (kTaps - 1 - kept);
        if (kept_row >= 0) to[kept_row * channels + channel] = window[i];
      }
    }
  }
}

constexpr int kRowsOfTile = 32;  // of a block of conv_rows_kernel
constexpr int kConvBlocks = 7;   // of it on a multiprocessor: 72 registers

// The sequence that has a row of the step.
__device__ __forceinline__ int sequence_of(const StatesView& s, int32_t row) {
  int low = 0, high = s.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (s.query_begin[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class T, int kWide>
struct alignas(sizeof(T) * kWide) Channels {
  T values[kWide];
};

// kWide neighbours of an array, at a multiple of 16 bytes where there are fours of them.
template <int kWide>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[kWide]) {
  if constexpr (kWide % 4 == 0) {
#pragma unroll
    for (int c = 0; c < kWide; c += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from + c));
      to[c] = four.x, to[c + 1] = four.y, to[c + 2] = four.z, to[c + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int c = 0; c < kWide; ++c) to[c] = __ldg(from + c);
  }
}
template <int kWide>
__device__ __forceinline__ void set_zero(float (&to)[kWide]) {
#pragma unroll
  for (float& f : to) f = 0.0f;
}

// What conv_rows_kernel has of kWide channels: the last rows seen, and the weights.
template <class T, int kTaps, int kWide>
struct ConvWindow {
  float rows[kTaps - 1][kWide], kernel[kTaps][kWide], bias[kWide];

  __device__ __forceinline__ void load_weights(const ConvParams& p, int64_t channel) {
    set_zero(bias);
    if (p.bias != nullptr) load_floats(p.bias + channel, bias);
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      const int tap = i - (kTaps - p.taps);
      set_zero(kernel[i]);
      if (tap >= 0) load_floats(p.kernel + tap * p.x.dim + channel, kernel[i]);
    }
  }
  // The rows in front of row `row` of the step.
  __device__ __forceinline__ void load_rows(const ConvParams& p, const Walk& walk, int32_t row,
                                            int64_t channel) {
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) {
      const int32_t at = row - kTaps + 1 + i, kept_row = p.taps - 1 + (at - walk.begin);
      set_zero(rows[i]);
      if (at >= walk.begin) {
        const auto seen = *reinterpret_cast<const Channels<T, kWide>*>(static_cast<const T*>(p.x.data) +
                                                                       at * p.x.stride_n + channel);
#pragma unroll
        for (int c = 0; c < kWide; ++c) rows[i][c] = widen(seen.values[c]);
      } else if (walk.from != nullptr && kept_row >= 0) {
#pragma unroll
        for (int c = 0; c < kWide; ++c) rows[i][c] = walk.from[kept_row * p.x.dim + channel + c];
      }
    }
  }
  // A row comes in, its results go out.
  __device__ __forceinline__ Channels<T, kWide> move_on(const Channels<T, kWide>& x, bool silu) {
    Channels<T, kWide> out;
#pragma unroll
    for (int c = 0; c < kWide; ++c) {
      const float last = widen(x.values[c]);
      float sum = bias[c];
#pragma unroll
      for (int i = 0; i + 1 < kTaps; ++i) sum = fmaf(kernel[i][c], rows[i][c], sum);
      sum = fmaf(kernel[kTaps - 1][c], last, sum);
      out.values[c] = narrow<T>(silu ? sum * sigmoid_of(sum) : sum);
#pragma unroll
      for (int i = 0; i + 2 < kTaps; ++i) rows[i][c] = rows[i + 1][c];
      rows[kTaps - 2][c] = last;
    }
    return out;
  }
};

// The results alone: no state is written, since other blocks read it. A thread has kWide channels and asks for kAhead rows
// before it stores the results of the first, which the compiler would not do: it does not know that x and out differ.
// grid: (pieces of the channels, tiles of rows)
template <class T, int kTaps, int kWide>
__global__ void __launch_bounds__(kThreads, kWide == 1 ? 1 : kConvBlocks)
    conv_rows_kernel(const ConvParams p) {
  constexpr int kAhead = 8;
  using Row = Channels<T, kWide>;
  const int64_t channel = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  ConvWindow<T, kTaps, kWide> window;
  if (channel < p.x.dim) window.load_weights(p, channel);
  allow_dependents();
  wait_for_producer();
  if (channel >= p.x.dim) return;
  const T* const x = static_cast<const T*>(p.x.data) + channel;
  T* const out = static_cast<T*>(p.out.data) + channel;
  const int32_t first = static_cast<int32_t>(blockIdx.y) * kRowsOfTile;
  const int32_t rows = static_cast<int32_t>(p.x.n),
                last = first + kRowsOfTile < rows ? first + kRowsOfTile : rows;
  int sequence = sequence_of(p.states, first);
  for (int32_t row = first; row < last; ++sequence) {
    const Walk walk(p.states, sequence);
    window.load_rows(p, walk, row, channel);
    const int32_t end = walk.end < last ? walk.end : last;
    const T* from = x + row * p.x.stride_n;
    T* to = out + row * p.out.stride_n;
    for (; row + kAhead <= end; row += kAhead) {
      Row seen[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i, from += p.x.stride_n) seen[i] = *reinterpret_cast<const Row*>(from);
#pragma unroll
      for (int i = 0; i < kAhead; ++i, to += p.out.stride_n)
        *reinterpret_cast<Row*>(to) = window.move_on(seen[i], p.silu != 0);
    }
    for (; row < end; ++row, from += p.x.stride_n, to += p.out.stride_n)
      *reinterpret_cast<Row*>(to) = window.move_on(*reinterpret_cast<const Row*>(from), p.silu != 0);
  }
}

// The states behind conv_rows_kernel. grid: (pieces of the channels, sequences)
template <class T, int kTaps>
__global__ void __launch_bounds__(kThreads) conv_save_kernel(const ConvParams p) {
  allow_dependents();
  wait_for_producer();
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x, channels = p.x.dim;
  if (channel >= channels) return;
  const Walk walk(p.states, static_cast<int>(blockIdx.y));
  const int kept = p.taps - 1;
  float old[kTaps];
#pragma unroll
  for (int i = 0; i < kTaps; ++i)
    old[i] = i < kept && walk.from != nullptr ? walk.from[i * channels + channel] : 0.0f;
  for (int32_t save = walk.save; save < walk.last_save; ++save) {
    const int32_t tokens = p.states.saves[2 * save];
    float* to = p.states.data + p.states.saves[2 * save + 1] * p.states.stride;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      if (i >= kept) continue;
      const int32_t back =
          tokens - kept + i;  // of the sequence's rows in the step; below zero: of the old state
      float value = back >= 0 ? element<T>(p.x, walk.begin + back, channel) : 0.0f;
#pragma unroll
      for (int j = 0; j < kTaps; ++j)
        if (back < 0 && j == kept + back) value = old[j];
      to[i * channels + channel] = value;
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
    for (float* to; (to = walk.target(p.states, row)) != nullptr;) {
#pragma unroll
      for (int r = 0; r < kStates; ++r) {
        const int i = r * kScanLanes + lane;
        if (active && i < p.state_dim) to[place * p.state_dim + i] = state[r];
      }
    }
  }
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
    const bool few = p.taps <= 4;
    const int64_t pieces = ceil_div(p.x.dim, kThreads);
    const Grid by_sequence{blocks(pieces, p.states.sequences), dim3(kThreads)};
    if (p.x.n < 8 * kRowsOfTile || p.x.n < 4 * p.states.sequences)
      return launch("conv", few ? conv_kernel<T, 4> : conv_kernel<T, kMostTaps>, by_sequence, stream, p);
    constexpr int kWide = 4;
    const auto whole = [](const View& view) {
      return view.dim % kWide == 0 && view.stride_n % kWide == 0 &&
             reinterpret_cast<uintptr_t>(view.data) % (kWide * sizeof(T)) == 0;
    };
    const bool weights = aligned16(p.kernel) && aligned16(p.bias);
    const int wide = few && weights && whole(p.x) && whole(p.out) ? kWide : 1;
    launch("conv",
           wide > 1 ? conv_rows_kernel<T, 4, kWide>
           : few    ? conv_rows_kernel<T, 4, 1>
                    : conv_rows_kernel<T, kMostTaps, 1>,
           {blocks(ceil_div(p.x.dim, wide * kThreads), ceil_div(p.x.n, kRowsOfTile)), dim3(kThreads)}, stream,
           p);
    launch("conv state", few ? conv_save_kernel<T, 4> : conv_save_kernel<T, kMostTaps>, by_sequence, stream,
           p);
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
