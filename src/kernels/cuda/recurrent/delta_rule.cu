// The gated delta rule.
//
// A block has 32 columns of a head's state [key_dim, value_dim] of one sequence in registers: column j depends on the others
// through q, k and the gates alone. Eight lanes share two columns, lane `part` has rows [part * kRows, (part + 1) * kRows).
// Tokens run one after the other, each in the same order of sums, so that a token's bits do not depend on where a step began;
// q, k, v and the gates of up to kTile tokens are brought to shared memory at a time, so that between them no thread
// waits for another. Operations of a token: 4 * key_dim * value_dim multiply-adds a head. Bytes: the state twice per
// step; at one token a sequence this is the whole traffic.
#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kParts = 8, kColumns = 32;

template <int kRows>
struct DeltaTile {
  static constexpr int kTile = kRows <= 16 ? 16 : kRows == 32 ? 8 : 4;
  // Four floats between the rows of two lanes: eight of them read 16 bytes each from different banks.
  static constexpr int kPitch = kRows + 4, kWidth = kParts * kPitch;
  float q[kTile][kWidth], k[kTile][kWidth], decay[kTile][kWidth];
  float v[kTile][kColumns];  // values, then results
  float beta[kTile];

  __device__ static int place(int row) { return row / kRows * kPitch + row % kRows; }
};

__device__ __forceinline__ float sum_of_parts(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  v += __shfl_xor_sync(0xffffffffu, v, 2);
  return v + __shfl_xor_sync(0xffffffffu, v, 4);
}

// Brings tokens [row, row + count) to shared memory: a warp for each token, whose q and k it makes unit vectors, q times
// key_dim^-1/2. Rows beyond key_dim stay zero. decay[t][0] alone is written where a head has one decay.
template <class T, int kRows>
__device__ void load_tile(const DeltaParams& p, DeltaTile<kRows>& s, int32_t row, int count, int head,
                          int first_column) {
  constexpr int kEach = kRows * kParts / 32;
  const int64_t values = values_of(p, head);
  const int warp = threadIdx.x / 32;
#pragma unroll 2
  for (int t = warp; t < count; t += kThreads / 32)
    unit_keys<T, kEach>(p, row + t, head, [&](int i, float q, float k) {
      const int place = s.place(i);
      s.q[t][place] = q;
      s.k[t][place] = k;
      if (p.channel_decay != 0)
        s.decay[t][place] =
            i < p.key_dim ? decay_of<T>(p, row + t, head, int64_t{head} * p.key_dim + i) : 0.0f;
    });
  for (int i = threadIdx.x; i < count * kColumns; i += kThreads) {
    const int t = i / kColumns, column = first_column + i % kColumns;
    s.v[t][i % kColumns] = column < p.value_dim ? element<T>(p.qkv, row + t, values + column) : 0.0f;
  }
  if (static_cast<int>(threadIdx.x) < count) {
    const int t = static_cast<int>(threadIdx.x);
    s.beta[t] = beta_of<T>(p, row + t, head);
    if (p.channel_decay == 0) s.decay[t][0] = decay_of<T>(p, row + t, head, head);
  }
}

// Two columns of kRows rows.
template <int kRows>
struct DeltaState {
  float a[kRows], b[kRows];

  // One token: what its q reads of the new state, summed over all parts.
  template <bool kChannels>
  __device__ float2 step(const DeltaTile<kRows>& s, int t, int part, float2 value) {
    const auto four = [&](const float* x, int r) {
      return *reinterpret_cast<const float4*>(x + part * DeltaTile<kRows>::kPitch + r);
    };
    const float all = s.decay[t][0], beta = s.beta[t];
    float2 known = make_float2(0.0f, 0.0f), sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const float4 k4 = four(s.k[t], r),
                   d4 = kChannels ? four(s.decay[t], r) : make_float4(all, all, all, all);
      const float k[4] = {k4.x, k4.y, k4.z, k4.w}, d[4] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[r + j] *= d[j];
        b[r + j] *= d[j];
        known.x = fmaf(a[r + j], k[j], known.x);
        known.y = fmaf(b[r + j], k[j], known.y);
      }
    }
    const float2 delta =
        make_float2((value.x - sum_of_parts(known.x)) * beta, (value.y - sum_of_parts(known.y)) * beta);
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const float4 k4 = four(s.k[t], r), q4 = four(s.q[t], r);
      const float k[4] = {k4.x, k4.y, k4.z, k4.w}, q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[r + j] = fmaf(k[j], delta.x, a[r + j]);
        b[r + j] = fmaf(k[j], delta.y, b[r + j]);
        sum.x = fmaf(a[r + j], q[j], sum.x);
        sum.y = fmaf(b[r + j], q[j], sum.y);
      }
    }
    return make_float2(sum_of_parts(sum.x), sum_of_parts(sum.y));
  }
};

// Where a thread's columns lie in a head's state.
struct ColumnPair {
  int64_t at;         // of row 0
  int rows, columns;  // how many there are: of the thread's rows, and 0 to 2 of its columns
  int64_t pitch;
  bool paired;  // both columns may be moved at once

  template <int kRows>
  __device__ void load(DeltaState<kRows>& state, const float* from) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      state.a[r] = state.b[r] = 0.0f;
      if (from == nullptr || r >= rows || columns == 0) continue;
      const float* x = from + at + r * pitch;
      if (paired) {
        const float2 both = *reinterpret_cast<const float2*>(x);
        state.a[r] = both.x;
        state.b[r] = both.y;
      } else {
        state.a[r] = x[0];
        if (columns > 1) state.b[r] = x[1];
      }
    }
  }
  template <int kRows>
  __device__ void store(const DeltaState<kRows>& state, float* to) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows || columns == 0) continue;
      float* x = to + at + r * pitch;
      if (paired) {
        *reinterpret_cast<float2*>(x) = make_float2(state.a[r], state.b[r]);
      } else {
        x[0] = state.a[r];
        if (columns > 1) x[1] = state.b[r];
      }
    }
  }
};

// grid: (pieces of 32 columns, value heads, sequences)
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads) delta_kernel(const DeltaParams p) {
  using Tile = DeltaTile<kRows>;
  __shared__ Tile s;
  wait_for_producer();
  const int lane = threadIdx.x % 32, part = lane % kParts, head = static_cast<int>(blockIdx.y);
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int mine = static_cast<int>(threadIdx.x) / 32 * 8 + lane / kParts * 2;  // of the block's columns
  const int rows = p.key_dim - part * kRows, columns = p.value_dim - first_column - mine;
  const ColumnPair place{(int64_t{head} * p.key_dim + part * kRows) * p.value_dim + first_column + mine,
                         rows < 0 ? 0 : rows,
                         columns < 0   ? 0
                         : columns < 2 ? columns
                                       : 2,
                         p.value_dim, p.paired != 0 && columns >= 2};
  Walk walk(p.states, static_cast<int>(blockIdx.z));
  DeltaState<kRows> state;
  place.load(state, walk.from);
  // Behind which row of the step the next save is; none: never.
  const auto next_save = [&] {
    return walk.save < walk.last_save ? walk.begin + p.states.saves[2 * walk.save] - 1 : walk.end;
  };
  int32_t save_row = next_save();
  for (int32_t row = walk.begin; row < walk.end; row += Tile::kTile) {
    const int count = walk.end - row < Tile::kTile ? walk.end - row : Tile::kTile;
    load_tile<T>(p, s, row, count, head, first_column);
    __syncthreads();
    allow_dependents();  // not earlier: weights that the kernel behind reads ahead would be in the way
    for (int t = 0; t < count; ++t) {
      const float2 value = *reinterpret_cast<const float2*>(&s.v[t][mine]);
      const float2 sum = p.channel_decay != 0 ? state.template step<true>(s, t, part, value)
                                              : state.template step<false>(s, t, part, value);
      if (part == 0) *reinterpret_cast<float2*>(&s.v[t][mine]) = sum;
      while (row + t == save_row) {
        place.store(state, p.states.data + p.states.saves[2 * walk.save + 1] * p.states.stride);
        ++walk.save;
        save_row = next_save();
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * kColumns; i += kThreads) {
      const int t = i / kColumns, column = first_column + i % kColumns;
      if (column < p.value_dim)
        set_element<T>(p.out, row + t, int64_t{head} * p.value_dim + column, s.v[t][i % kColumns]);
    }
    __syncthreads();
  }
}

template <class T, int kRows>
void launch_rows(const DeltaParams& p, Stream stream) {
  launch("delta", delta_kernel<T, kRows>,
         {blocks(ceil_div(p.value_dim, kColumns), p.value_heads, p.states.sequences), dim3(kThreads)}, stream,
         p);
}

}  // namespace

void launch_delta(const DeltaParams& asked, Stream stream) {
  if (asked.states.sequences == 0) return;
  if (delta_token_fits(asked)) return launch_delta_token(asked, stream);
  if (delta_chunk_fits(asked)) return launch_delta_chunk(asked, stream);
  DeltaParams p = asked;
  p.paired = p.value_dim % 2 == 0 && p.states.stride % 2 == 0 &&
             reinterpret_cast<uintptr_t>(p.states.data) % sizeof(float2) == 0;
  visit_activations(p.qkv.type, [&](auto type) {
    using T = decltype(type);
    if (p.key_dim <= 64) return launch_rows<T, 8>(p, stream);
    if (p.key_dim <= 128) return launch_rows<T, 16>(p, stream);
    if (p.key_dim <= 256) return launch_rows<T, 32>(p, stream);
    launch_rows<T, 64>(p, stream);
  });
}

}  // namespace sluice::kernels::cuda
