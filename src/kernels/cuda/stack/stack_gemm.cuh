// The matrices of a layer. A warp has kColumns columns of every chunk: its part of the tokens' rows stays in registers while
// the rows of the matrix come by, and the warps' sums meet in shared memory.
#pragma once

#include "kernels/cuda/stack/stack_consumer.cuh"

namespace sluice::kernels::cuda::stack {

// One: a single token. Few: several, with rows that leave registers for parts of the matrix. Wide: several with any rows.
enum class Rows { One, Few, Wide };

template <int Dim, Rows kRows>
class StackGemm {
 public:
  __device__ __forceinline__ explicit StackGemm(Consumer<Dim>& consumer)
      : c_(consumer), none_(static_cast<uint32_t>(consumer.p.tokens) / (kStackTokens + 1)) {}

  // `rest`: what the residual stream holds in the block's columns, of this thread's pair of them, not rounded.
  __device__ __forceinline__ void run(const Stage& s, float2& rest) {
    if (s.count == 0) return;
    c_.square_turn ^= 1;
    if constexpr (kRows != Rows::Wide) {
      if (s.columns <= kChunk) return add_up<1>(s, rest);
      if (s.columns <= 2 * kChunk) return add_up<2>(s, rest);
      if (kRows == Rows::Few || s.columns <= 3 * kChunk) return add_up<3>(s, rest);
      if (s.columns <= 4 * kChunk) return add_up<4>(s, rest);
    }
    add_up_wide(s, rest);
  }

 private:
  using L = Layout<Dim>;
  static constexpr bool kOne = kRows == Rows::One;
  static_assert(kResident == 4);

  __device__ __forceinline__ bool has(int columns, int chunk) const {
    return chunk * kChunk + c_.warp * kColumns < columns;
  }

  // Of several tokens only rows of one chunk are, where parts of the matrix lie in registers.
  template <int Chunks>
  __device__ __forceinline__ static constexpr bool may_be_normed() {
    return kRows != Rows::Few || Chunks == 1;
  }

  // -- rows of tokens

  __device__ __forceinline__ const bf16* place(const Stage& s, int chunk, int piece) const {
    return s.x + c_.g * s.columns + chunk * kChunk + c_.warp * kColumns + piece * 32 + c_.t * 8;
  }
  __device__ __forceinline__ void load_chunk(uint4 (&x)[kPieces], const Stage& s, int chunk) const {
    const bool live = c_.g < c_.p.tokens && has(s.columns, chunk);
#pragma unroll
    for (int j = 0; j < kPieces; ++j) x[j] = live ? look4(place(s, chunk, j)) : make_uint4(0, 0, 0, 0);
  }
  // Many tokens' long rows are not looked for all the time, which would take the L2 from the weights: each lane waits for one piece.
  __device__ __forceinline__ void wait_for_first(const Stage& s) const {
    if (c_.g >= c_.p.tokens || !has(s.columns, 0)) return;
#pragma unroll 1
    while (!there(look4(place(s, 0, 0)))) __nanosleep(kNap);
  }
  template <int Chunks>
  __device__ __forceinline__ void look_for_rows(uint4 (&x)[Chunks][kPieces], const Stage& s) {
    if (kRows == Rows::Wide && s.wait && c_.p.tokens > kEagerTokens) wait_for_first(s);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Chunks; ++i) load_chunk(x[i], s, i);
    if (!s.wait) return;
#pragma unroll 1
    while (true) {
      bool again = false;
#pragma unroll
      for (int i = 0; i < Chunks; ++i) {
        if (!has(s.columns, i)) break;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (there(x[i][j])) continue;
          again = true;
          x[i][j] = look4(place(s, i, j));
        }
      }
      if (!again) break;
    }
    __syncwarp();
  }
  // Times eight gains; returns the sum of the squares before.
  __device__ __forceinline__ static float times(uint4& x, uint4 low, uint4 high) {
    const float gain[8] = {__uint_as_float(low.x),  __uint_as_float(low.y),  __uint_as_float(low.z),
                           __uint_as_float(low.w),  __uint_as_float(high.x), __uint_as_float(high.y),
                           __uint_as_float(high.z), __uint_as_float(high.w)};
    float f[8], sum = 0.0f;
    unpack8(x, f);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += f[e] * f[e], f[e] *= gain[e];
    x = pack8(f);
    return sum;
  }
  // Eight gains of each of `Count` places, `step` columns apart; zeros where the row has ended.
  template <int Count>
  __device__ __forceinline__ void take_gains(uint4 (&gains)[Count][2], const Cursor& slot, int column,
                                             int step, int columns) const {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        gains[i][h] = column + i * step < columns ? load_shared(slot.at() + (column + i * step) * 4 + h * 16)
                                                  : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void take_gains_early(uint4 (&gains)[kPieces][2], const Cursor& gain) const {
    gain.wait_full();
    take_gains<kPieces>(gains, gain, c_.warp * kColumns + c_.t * 8, 32, c_.p.x.dim);
    uint32_t read = 0;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) read |= gains[j][0].x | gains[j][1].x;
    release_read(gain, read);
  }
  // The part of several tokens' rows that the warp's lanes multiply: of token g. Normed: times the gain; the row's factor is
  // for who reads the sums, and finds the squares beside them.
  template <int Chunks>
  __device__ __forceinline__ void load_rows(uint4 (&x)[Chunks][kPieces], const Stage& s, const Cursor& gain) {
    constexpr bool kEarly = Chunks == 1;  // gains wait in registers
    [[maybe_unused]] uint4 early[kPieces][2];
    if constexpr (kEarly) {
      if (s.normed()) take_gains_early(early, gain);
    }
    look_for_rows<Chunks>(x, s);
    if (!may_be_normed<Chunks>() || !s.normed()) return;
    if constexpr (!kEarly) gain.wait_full();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Chunks; ++i) {
      if (!has(s.columns, i)) break;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        uint4 late[1][2];
        if constexpr (!kEarly)
          take_gains<1>(late, gain, i * kChunk + c_.warp * kColumns + c_.t * 8 + j * 32, 0, s.columns);
        const auto& gains = kEarly ? early[j] : late[0];
        sum += times(x[i][j], gains[0], gains[1]);
      }
    }
    if constexpr (!kEarly) release_read(gain, __float_as_uint(sum));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (c_.t == 0) c_.squares()[c_.warp * 8 + c_.g] = sum;
  }
  // The row of one token. Sixteen lanes look for a chunk, each for eight columns, so that a warp's look is one request or two;
  // then all lanes get what they multiply, by shared memory.
  template <int Chunks>
  __device__ __forceinline__ void load_row(uint4 (&x)[Chunks][kPieces], const Stage& s, const Cursor& gain) {
    constexpr int kLoads = (Chunks + 1) / 2;
    const int column = c_.lane / 16 * kChunk + c_.warp * kColumns + c_.lane % 16 * 8;
    uint4 v[kLoads], gains[kLoads][2];
    bool live[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      live[i] = has(s.columns, 2 * i + c_.lane / 16);
      v[i] = live[i] ? look4(s.x + column + i * 2 * kChunk) : make_uint4(0, 0, 0, 0);
    }
    const auto gains_of_row = [&] {
      if (!s.normed()) return;
      gain.wait_full();
      take_gains<kLoads>(gains, gain, column, 2 * kChunk, s.columns);
      uint32_t read = 0;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) read |= gains[i][0].x | gains[i][1].x;
      release_read(gain, read);
    };
    if constexpr (kLoads == 1) gains_of_row();  // more would spill
#pragma unroll 1
    while (s.wait) {
      bool again = false;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) again = again || !there(v[i]);
      if (!__any_sync(0xffffffffu, again)) break;
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        if (!there(v[i])) v[i] = look4(s.x + column + i * 2 * kChunk);
    }
    if constexpr (kLoads > 1) gains_of_row();
    if (s.normed()) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum += times(v[i], gains[i][0], gains[i][1]);
      sum = warp_sum(sum);
      if (c_.lane == 0) c_.squares()[c_.warp * 8] = sum;
    }
    const uint32_t row = shared_address(c_.shared) + L::kRows + c_.warp * kResident * kColumns * 2;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (2 * i + c_.lane / 16 < Chunks) store_shared(row + (i * 32 + c_.lane) * 16, v[i]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Chunks; ++i) {
#pragma unroll
      for (int j = 0; j < kPieces; ++j) x[i][j] = load_shared(row + (i * 16 + j * 4 + c_.t) * 16);
    }
  }

  // -- rows of matrices

  // The warp's columns of a chunk of eight rows. Of 32 columns a lane has eight that lie together, for two steps of 16.
  __device__ __forceinline__ void take(uint4 (&w)[kPieces], const Cursor& slot) const {
    const uint32_t at = slot.at() + c_.g * kPitch + (c_.warp * kColumns + c_.t * 8) * 2;
    slot.wait_full();
#pragma unroll
    for (int j = 0; j < kPieces; ++j) w[j] = load_shared(at + j * 64);
  }
  // By a whole warp. An arrival may pass reads in front of it that stand behind many looks: a read has ended for certain where
  // an instruction takes what it read, so the barrier's address is made of `read`, a word of each.
  __device__ __forceinline__ void release_read(const Cursor& slot, uint32_t read) const {
    __syncwarp();
    if (c_.lane == 0) barrier_arrive(slot.empty_barrier() + (read & none_));
  }
  __device__ __forceinline__ void release_taken(const uint4 (&w)[kPieces]) {
    uint32_t read = 0;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) read |= w[j].x;
    release_read(c_.cursor, read);
    c_.cursor.advance();
  }
  // Rows of two groups by eight tokens, or by the one token in each of the operand's columns.
  template <int Chains>
  __device__ __forceinline__ static void multiply(float (&sums)[Chains][4], const uint4 (&x)[kPieces],
                                                  const uint4 (&low)[kPieces], const uint4 (&high)[kPieces]) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      mma_bf16(sums[2 * j % Chains], low[j].x, high[j].x, low[j].y, high[j].y, x[j].x, x[j].y);
      mma_bf16(sums[(2 * j + 1) % Chains], low[j].z, high[j].z, low[j].w, high[j].w, x[j].z, x[j].w);
    }
  }
  // Of row g; token by token, as those who add them up read them.
  template <int Chains>
  __device__ __forceinline__ void keep_part(int group, const float (&sums)[Chains][4], int half) {
    float first = 0.0f, second = 0.0f;
#pragma unroll
    for (int i = 0; i < Chains; ++i) first += sums[i][2 * half], second += sums[i][2 * half + 1];
    float* const to = c_.parts() + (group * kWarps + c_.warp) * 64 + c_.g;
    if constexpr (kOne) {
      if (c_.t == 0) *to = first;
    } else {
      to[16 * c_.t] = first, to[16 * c_.t + 8] = second;
    }
  }
  // Rows of one group by eight tokens, which are the other operand's rows: results in half as many registers.
  template <int Chains>
  __device__ __forceinline__ static void multiply_group(float (&sums)[Chains][2], const uint4 (&x)[kPieces],
                                                        const uint4 (&w)[kPieces]) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      mma_eight(sums[2 * j % Chains], x[j].x, x[j].y, w[j].x, w[j].y);
      mma_eight(sums[(2 * j + 1) % Chains], x[j].z, x[j].w, w[j].z, w[j].w);
    }
  }
  template <int Chains>
  __device__ __forceinline__ void keep_group(int group, const float (&sums)[Chains][2]) {
    float2 sum = make_float2(sums[0][0], sums[0][1]);
#pragma unroll
    for (int i = 1; i < Chains; ++i) sum.x += sums[i][0], sum.y += sums[i][1];
    *reinterpret_cast<float2*>(c_.parts() + (group * kWarps + c_.warp) * 64 + c_.lane * 2) = sum;
  }
  // The first slots of the matrix are in registers, and free, when the rows come; the next are taken as these are used.
  template <int Chunks>
  __device__ __forceinline__ void add_up(const Stage& s, float2& rest) {
    constexpr int kStep = Chunks == 1 ? 4 : 1;                 // groups
    constexpr int kHeld = Chunks == 2 || Chunks == 3 ? 2 : 1;  // chunks of each: more would spill
    constexpr bool kRound = Chunks % kHeld == 0;               // the next group's follow in their places
    const Cursor gain = c_.cursor;
    if (may_be_normed<Chunks>() && s.normed()) c_.cursor.advance();
    Cursor next = c_.cursor;
    const auto take_next = [&](uint4(&w)[kPieces]) { take(w, next), next.advance(); };
    uint4 w[kStep][kHeld][kPieces] = {}, x[Chunks][kPieces];
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      if (k >= s.count) break;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) take_next(w[k][i]);
    }
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      if (k >= s.count) break;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) release_taken(w[k][i]);
    }
    if constexpr (kOne) {
      load_row<Chunks>(x, s, gain);
    } else {
      load_rows<Chunks>(x, s, gain);
    }
    c_.turn ^= 1;
#pragma unroll 1
    for (int group = 0; group < s.count; group += kStep) {
#pragma unroll
      for (int pair = 0; pair < kStep; pair += 2) {
        const int at = group + pair;
        if (at >= s.count) break;
        float sums[4][4] = {};
        if constexpr (kStep > 1) {
          if (has(s.columns, 0)) multiply(sums, x[0], w[pair][0], w[pair + 1][0]);
          if (at >= kStep) release_taken(w[pair][0]);
          if (at >= kStep && at + 1 < s.count) release_taken(w[pair + 1][0]);
          if (at + kStep < s.count) take_next(w[pair][0]);
          if (at + 1 + kStep < s.count) take_next(w[pair + 1][0]);
          keep_part(at % kGroups, sums, 0);
          keep_part((at + 1) % kGroups, sums, 1);
        } else {
          constexpr uint4 none[kPieces] = {};
#pragma unroll
          for (int i = 0; i < Chunks; ++i) {
            if (has(s.columns, i)) multiply(sums, x[i], w[0][i % kHeld], none);
            if (group > 0 || i >= kHeld) release_taken(w[0][i % kHeld]);
            if (i + kHeld < Chunks || (kRound && at + 1 < s.count)) take_next(w[0][i % kHeld]);
          }
#pragma unroll
          for (int i = 0; i < (kRound ? 0 : kHeld); ++i)
            if (at + 1 < s.count) take_next(w[0][i]);
          keep_part(at % kGroups, sums, 0);
        }
      }
      if ((group + kStep) % kGroups != 0 && group + kStep < s.count) continue;
      sync_consumers();
      const int mine = group / kGroups * kGroups + c_.warp;
      if (mine < s.count) finish(s, s.first + mine, rest);
      c_.turn ^= 1;
    }
    c_.turn ^= 1;
  }
  // Several tokens' rows, or those of one that do not fit registers: parts of the matrix as they are used.
  __device__ __forceinline__ void add_up_wide(const Stage& s, float2& rest) {
    const Cursor gain = c_.cursor;
    if (s.normed()) c_.cursor.advance();
    uint4 x[kResident][kPieces];
    load_rows<kResident>(x, s, gain);
#pragma unroll 1
    for (int done = 0; done < s.count; done += kGroups) {
      const int groups = min(kGroups, s.count - done);
      c_.turn ^= 1;
      if (s.columns <= kStackWidth) {
        add_up_groups(s, x, groups);
      } else {
        add_up_long(s, x, groups);
      }
      sync_consumers();
      if (c_.warp < groups) finish(s, s.first + done + c_.warp, rest);
    }
  }
  // A chunk is fetched while the one before is multiplied.
  __device__ __forceinline__ void add_up_groups(const Stage& s, const uint4 (&x)[kResident][kPieces],
                                                int groups) {
    uint4 w[kPieces];
    take(w, c_.cursor);
    release_taken(w);
#pragma unroll 1
    for (int i = 0; i < groups; ++i) {
      float sums[4][2] = {};
#pragma unroll
      for (int k = 0; k < kResident; ++k) {
        if (k * kChunk >= s.columns) break;
        uint4 next[kPieces] = {};
        const bool more = i + 1 < groups || (k + 1) * kChunk < s.columns;
        if (more) take(next, c_.cursor);
        if (has(s.columns, k)) multiply_group(sums, x[k], w);
        if (more) release_taken(next);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) w[j] = next[j];
      }
      keep_group(i, sums);
    }
  }
  // Rows that are too long for registers: chunk after chunk of all groups, the next chunks of x on their way.
  __device__ __forceinline__ void add_up_long(const Stage& s, uint4 (&x)[kResident][kPieces], int groups) {
    float sums[kLongGroups][2][2] = {};
#pragma unroll 1
    for (int k = 0; k * kChunk < s.columns; k += kResident) {
#pragma unroll
      for (int j = 0; j < kResident; ++j) {
        const int chunk = k + j;
        if (chunk * kChunk >= s.columns) break;
        wait_chunk(x[j], s, chunk);
#pragma unroll
        for (int i = 0; i < kLongGroups; ++i) {
          if (i >= groups) break;
          uint4 w[kPieces];
          take(w, c_.cursor);
          if (has(s.columns, chunk)) multiply_group(sums[i], x[j], w);
          release_taken(w);
        }
        load_chunk(x[j], s, chunk + kResident);
      }
    }
#pragma unroll
    for (int i = 0; i < kLongGroups; ++i) {
      if (i >= groups) break;
      keep_group(i, sums[i]);
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
  const uint32_t none_;  // zero, which the compiler does not know
};

}  // namespace sluice::kernels::cuda::stack
