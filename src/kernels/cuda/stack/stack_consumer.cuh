// What all consumers' warps share, and the matrices of a layer. A warp has kColumns columns of every chunk: its part of the
// tokens' rows stays in registers while the rows of the matrix come by, and the warps' sums meet in shared memory.
#pragma once

#include "kernels/cuda/stack/stack_plan.cuh"

namespace sluice::kernels::cuda::stack {

// What a matrix is multiplied with and where its results go.
struct Stage {
  enum Kind : int { Qkv, Out, GateUp, Down };
  int kind;
  const bf16* x;              // [tokens, columns]
  int columns, first, count;  // groups of eight rows
  bool wait;                  // x is handed over by other blocks
  uint32_t* to;               // [tokens, width], in words
  int width;
  bool last;  // what is made leaves the launch

  __device__ __forceinline__ bool normed() const { return kind % 2 == 0; }
};

template <int Dim>
struct Consumer {
  using L = Layout<Dim>;
  const StackParams& p;
  const Plan& plan;
  uint8_t* shared;
  Cursor cursor;
  int warp, lane, g, t;  // lane = 4 g + t
  int turn = 0, square_turn = 0;

  __device__ __forceinline__ float* whole_parts() const {
    return reinterpret_cast<float*>(shared + L::kParts);
  }
  // Rounds take turns, so that one barrier is enough for each.
  __device__ __forceinline__ float* parts() const { return whole_parts() + turn * kPartWords; }
  __device__ __forceinline__ float* squares() const {
    return reinterpret_cast<float*>(shared + L::kSquares) + square_turn * kWarps * 8;
  }
};

template <int Dim>
class StackGemm {
 public:
  __device__ __forceinline__ explicit StackGemm(Consumer<Dim>& consumer) : c_(consumer) {}

  // `rest`: what the residual stream holds in the block's columns, of this thread's pair of them, not rounded.
  __device__ __forceinline__ void run(const Stage& s, float2& rest) {
    if (s.count == 0) return;
    load(s);
    c_.square_turn ^= 1;
    if (s.normed()) apply_gain(s.columns);
#pragma unroll 1
    for (int done = 0; done < s.count; done += kGroups) {
      const int groups = min(kGroups, s.count - done);
      c_.turn ^= 1;
      if (s.columns <= kChunk) {
        add_up_short(groups, s.columns);
      } else if (s.columns <= kStackWidth) {
        add_up(groups, s.columns);
      } else {
        add_up_long(s, groups);
      }
      sync_consumers();
      if (c_.warp < groups) finish(s, s.first + done + c_.warp, rest);
    }
  }

 private:
  __device__ __forceinline__ const bf16* place(const Stage& s, int chunk, int piece) const {
    return s.x + c_.g * s.columns + chunk * kChunk + c_.warp * kColumns + piece * 32 + c_.t * 8;
  }
  __device__ __forceinline__ bool has(int columns, int chunk) const {
    return chunk * kChunk + c_.warp * kColumns < columns;
  }
  __device__ __forceinline__ void load_chunk(uint4 (&x)[kPieces], const Stage& s, int chunk) const {
    const bool live = c_.g < c_.p.tokens && has(s.columns, chunk);
#pragma unroll
    for (int j = 0; j < kPieces; ++j) x[j] = live ? look4(place(s, chunk, j)) : make_uint4(0, 0, 0, 0);
  }
  // Many tokens are not looked for all the time, which would take the L2 from the weights: each lane waits for one piece.
  __device__ __forceinline__ void wait_for_first(const Stage& s) const {
    if (c_.g >= c_.p.tokens || !has(s.columns, 0)) return;
#pragma unroll 1
    while (!there(look4(place(s, 0, 0)))) __nanosleep(kNap);
  }
  // The first chunks of all tokens.
  __device__ __forceinline__ void load(const Stage& s) {
    if (s.wait && c_.p.tokens > kEagerTokens) wait_for_first(s);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kResident; ++i) load_chunk(x_[i], s, i);
    if (!s.wait) return;
#pragma unroll 1
    while (true) {
      bool again = false;
#pragma unroll
      for (int i = 0; i < kResident; ++i) {
        if (!has(s.columns, i)) break;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (there(x_[i][j])) continue;
          again = true;
          x_[i][j] = look4(place(s, i, j));
        }
      }
      if (!again) break;
    }
    __syncwarp();
  }
  // Times the gain; the row's factor is for who reads the sums, and finds the squares beside them.
  __device__ __forceinline__ void apply_gain(int columns) {
    float sum = 0.0f;
    c_.cursor.wait_full();
    const uint32_t gains = c_.cursor.at() + (c_.warp * kColumns + c_.t * 8) * 4;
#pragma unroll
    for (int i = 0; i < kResident; ++i) {
      if (!has(columns, i)) break;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const uint32_t at = gains + (i * kChunk + j * 32) * 4;
        const uint4 low = load_shared(at), high = load_shared(at + 16);
        const float gain[8] = {__uint_as_float(low.x),  __uint_as_float(low.y),  __uint_as_float(low.z),
                               __uint_as_float(low.w),  __uint_as_float(high.x), __uint_as_float(high.y),
                               __uint_as_float(high.z), __uint_as_float(high.w)};
        float f[8];
        unpack8(x_[i][j], f);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum += f[e] * f[e], f[e] *= gain[e];
        x_[i][j] = pack8(f);
      }
    }
    c_.cursor.release(c_.lane);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (c_.t == 0) c_.squares()[c_.warp * 8 + c_.g] = sum;
  }
  // The warp's columns of the next chunk of eight rows. Of 32 columns a lane has eight that lie together, for two steps of 16.
  __device__ __forceinline__ void fetch(uint4 (&w)[kPieces]) {
    const uint32_t at = c_.cursor.at() + c_.g * kPitch + (c_.warp * kColumns + c_.t * 8) * 2;
    c_.cursor.wait_full();
#pragma unroll
    for (int j = 0; j < kPieces; ++j) w[j] = load_shared(at + j * 64);
    c_.cursor.release(c_.lane);
  }
  template <int Chains>
  __device__ __forceinline__ static void multiply(float (&sums)[Chains][2], const uint4 (&x)[kPieces],
                                                  const uint4 (&w)[kPieces]) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      mma_eight(sums[2 * j % Chains], x[j].x, x[j].y, w[j].x, w[j].y);
      mma_eight(sums[(2 * j + 1) % Chains], x[j].z, x[j].w, w[j].z, w[j].w);
    }
  }
  template <int Chains>
  __device__ __forceinline__ void keep_part(int group, const float (&sums)[Chains][2]) {
    float2 sum = make_float2(sums[0][0], sums[0][1]);
#pragma unroll
    for (int i = 1; i < Chains; ++i) sum.x += sums[i][0], sum.y += sums[i][1];
    *reinterpret_cast<float2*>(c_.parts() + (group * kWarps + c_.warp) * 64 + c_.lane * 2) = sum;
  }
  // Rows of one chunk: two groups at a time, the next two fetched while their sums come. One alone would wait for those.
  __device__ __forceinline__ void add_up_short(int groups, int columns) {
    uint4 w[2][kPieces] = {};
    fetch(w[0]);
    if (groups > 1) fetch(w[1]);
#pragma unroll 1
    for (int i = 0; i < groups; i += 2) {
      float sums[2][4][2] = {};
      if (has(columns, 0)) multiply(sums[0], x_[0], w[0]), multiply(sums[1], x_[0], w[1]);
      if (i + 2 < groups) fetch(w[0]);
      if (i + 3 < groups) fetch(w[1]);
      keep_part(i, sums[0]);
      if (i + 1 < groups) keep_part(i + 1, sums[1]);
    }
  }
  // A chunk is fetched while the one before is multiplied.
  __device__ __forceinline__ void add_up(int groups, int columns) {
    uint4 w[kPieces];
    fetch(w);
#pragma unroll 1
    for (int i = 0; i < groups; ++i) {
      float sums[4][2] = {};
#pragma unroll
      for (int k = 0; k < kResident; ++k) {
        if (k * kChunk >= columns) break;
        uint4 next[kPieces] = {};
        if (i + 1 < groups || (k + 1) * kChunk < columns) fetch(next);
        if (has(columns, k)) multiply(sums, x_[k], w);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) w[j] = next[j];
      }
      keep_part(i, sums);
    }
  }
  // Rows that are too long for registers: chunk after chunk of all groups, the next chunks of x on their way.
  __device__ __forceinline__ void add_up_long(const Stage& s, int groups) {
    float sums[kLongGroups][2][2] = {};
#pragma unroll 1
    for (int k = 0; k * kChunk < s.columns; k += kResident) {
#pragma unroll
      for (int j = 0; j < kResident; ++j) {
        const int chunk = k + j;
        if (chunk * kChunk >= s.columns) break;
        wait_chunk(x_[j], s, chunk);
#pragma unroll
        for (int i = 0; i < kLongGroups; ++i) {
          if (i >= groups) break;
          uint4 w[kPieces];
          fetch(w);
          if (has(s.columns, chunk)) multiply(sums[i], x_[j], w);
        }
        load_chunk(x_[j], s, chunk + kResident);
      }
    }
#pragma unroll
    for (int i = 0; i < kLongGroups; ++i) {
      if (i >= groups) break;
      keep_part(i, sums[i]);
    }
  }
  __device__ __forceinline__ void wait_chunk(uint4 (&x)[kPieces], const Stage& s, int chunk) const {
#pragma unroll 1
    while (true) {
      bool again = false;
#pragma unroll
      for (int j = 0; j < kPieces; ++j)
        if (!there(x[j])) again = true, x[j] = look4(place(s, chunk, j));
      if (!again) break;
    }
    __syncwarp();
  }
  // Of one group: token g, rows 2 t and 2 t + 1.
  __device__ __forceinline__ float2 sum_of_warps() const {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 v =
          *reinterpret_cast<const float2*>(c_.parts() + (c_.warp * kWarps + w) * 64 + c_.lane * 2);
      sum.x += v.x, sum.y += v.y;
    }
    return sum;
  }
  __device__ __forceinline__ float row_factor(int columns) const {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += c_.squares()[w * 8 + c_.g];
    return rsqrtf(total / static_cast<float>(columns) + c_.p.eps);
  }
  __device__ __forceinline__ void finish(const Stage& s, int group, float2& rest) {
    float2 v = sum_of_warps();
    int rows = 8;  // results of a group
    if (s.normed()) {
      const float factor = row_factor(s.columns);
      v.x *= factor, v.y *= factor;
    } else {
      v.x += rest.x, v.y += rest.y;
    }
    if (s.kind == Stage::GateUp) {
      const float up_x = __shfl_xor_sync(0xffffffffu, v.x, 2), up_y = __shfl_xor_sync(0xffffffffu, v.y, 2);
      v.x = v.x / (1.0f + power_of_two(-kLog2E * v.x)) * up_x;
      v.y = v.y / (1.0f + power_of_two(-kLog2E * v.y)) * up_y;
      rows = 4;
    }
    const uint32_t word = pack_pair(v.x, v.y);
    if (!s.normed()) rest = v;
    if (c_.g >= c_.p.tokens || 2 * c_.t >= rows) return;
    uint32_t* const at = s.to + (c_.g * s.width + group * rows) / 2 + c_.t;
    if (s.last) {
      *at = word;
    } else {
      hand1(at, word);
    }
  }

  Consumer<Dim>& c_;
  uint4 x_[kResident][kPieces];
};

}  // namespace sluice::kernels::cuda::stack
