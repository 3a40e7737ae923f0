// Attention of a stack's tokens, each over its own sequence. A block has tiles of some (token, kv head) pairs, a warp 16 keys
// of a tile; where a pair has several blocks, each hands its part to all of them and they share the merging.
#pragma once

#include "kernels/cuda/stack/stack_consumer.cuh"

namespace sluice::kernels::cuda::stack {

template <int Dim>
class StackAttention {
 public:
  __device__ __forceinline__ StackAttention(Consumer<Dim>& consumer, int layer, uint32_t* set)
      : c_(consumer),
        p_(consumer.p),
        layer_(p_.layers[layer]),
        set_(set),
        group_(p_.heads / p_.kv_heads),
        parity_(static_cast<uint32_t>(layer) & 1u) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      SegmentWalk walk(c_.plan);
      Segment s;
#pragma unroll 1
      while (walk.next(c_.plan, s)) {
        if (pass == 0) {
          attend(s);
        } else if (s.parts > 1 && !c_.plan.paired) {
          merge(s);
        }
      }
    }
  }

 private:
  using L = Layout<Dim>;
  static constexpr int kEach = Dim / 32;  // elements of a head that a lane holds

  // A warp's keys so far: of head g the maximum, the lane's sum, and values 8 d + 2 t and the next.
  struct Own {
    float maximum = -INFINITY, sum = 0.0f, values[Dim / 8][2] = {};
  };

  // A head that another block made.
  __device__ __forceinline__ void take_head(const uint32_t* from, float (&f)[kEach]) {
    uint32_t words[kEach / 2];
#pragma unroll 1
    while (true) {
      bool got = false;
      if constexpr (kEach == 4) {
        const uint2 v = look2(from + c_.lane * 2);
        words[0] = v.x, words[1] = v.y;
        got = there(v);
      } else {
        words[0] = look1(from + c_.lane);
        got = words[0] != kStackVoid;
      }
      if (__all_sync(0xffffffffu, got)) break;
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) f[e] = e % 2 == 0 ? low_half(words[e / 2]) : high_half(words[e / 2]);
  }
  // The same, normed and rotated.
  __device__ __forceinline__ void take_turned(const uint32_t* from, const float* gain, const float* angles,
                                              float (&f)[kEach]) {
    float gains[kEach], cosine[kEach], sine[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      gains[e] = gain != nullptr ? gain[c_.lane * kEach + e] : 1.0f;
      const float2 angle = *reinterpret_cast<const float2*>(angles + 2 * (c_.lane % 16 * kEach + e));
      cosine[e] = angle.x, sine[e] = angle.y;
    }
    take_head(from, f);
    if (gain != nullptr) {
      float squares = 0.0f;
#pragma unroll
      for (int e = 0; e < kEach; ++e) squares += f[e] * f[e];
      const float factor = rsqrtf(warp_sum(squares) / Dim + p_.eps);
#pragma unroll
      for (int e = 0; e < kEach; ++e) f[e] *= factor * gains[e];
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const float other = __shfl_xor_sync(0xffffffffu, f[e], 16);
      f[e] = c_.lane < 16 ? f[e] * cosine[e] - other * sine[e] : f[e] * cosine[e] + other * sine[e];
    }
  }
  __device__ __forceinline__ void keep(void* to, const float (&f)[kEach]) {
#pragma unroll
    for (int e = 0; e < kEach; e += 2)
      *reinterpret_cast<uint32_t*>(static_cast<bf16*>(to) + c_.lane * kEach + e) = pack_pair(f[e], f[e + 1]);
  }
  // Queries to shared memory; the token's key and value too, and to the cache, where the segment has its position.
  __device__ __forceinline__ void take_heads(const Segment& s) {
    const int width = (p_.heads + 2 * p_.kv_heads) * Dim;
    const uint32_t* const row = set_ + p_.layout.qkv + s.token * width / 2;
    const float* const angles = p_.angles + s.token * Dim;
#pragma unroll 1
    for (int r = c_.warp; r < (s.end == s.tiles ? group_ + 2 : group_); r += kWarps) {
      const bool query = r < group_, key = r == group_;
      const int head = query ? s.head * group_ + r : p_.heads + s.head + (key ? 0 : p_.kv_heads);
      // Found before the head is waited for.
      bf16* const cached = query ? nullptr : in_cache(key ? layer_.keys : layer_.values, s);
      float f[kEach];
      if (query || key) {
        take_turned(row + head * Dim / 2, query ? layer_.q_gain : layer_.k_gain, angles, f);
      } else {
        take_head(row + head * Dim / 2, f);
      }
      const int place = query ? L::kQueries + r * L::kQueryPitch * 2 : key ? L::kNewKey : L::kNewValue;
      keep(c_.shared + place, f);
      if (!query) keep(cached, f);
    }
  }
  __device__ __forceinline__ bf16* in_cache(void* cache, const Segment& s) {
    const int position = c_.plan.contexts[s.token] - 1;
    const int64_t block = p_.table.blocks[c_.plan.rows[s.token] + (position >> p_.block_shift)];
    return static_cast<bf16*>(cache) + block * p_.stride_block + s.head * p_.stride_head +
           (position & ((1 << p_.block_shift) - 1)) * Dim;
  }
  // Puts the token's own key or value into its tile.
  __device__ __forceinline__ void patch(uint32_t slot, int from, int key) {
    const auto* row = reinterpret_cast<const uint32_t*>(c_.shared + from);
    const uint32_t to = slot + key / 8 * L::kRunPitch + key % 8 * Dim * 2;
#pragma unroll
    for (int e = c_.lane; e < Dim / 2; e += 32)
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + e * 4), "r"(row[e]) : "memory");
  }
  // Keys 2 unit and 2 unit + 1 of every run of a tile, of which those below `limit` count: one of them at least.
  __device__ __forceinline__ void add_keys(Own& own, uint32_t keys, uint32_t values, int unit, int limit) {
    float scores[2][2] = {};
    const int matrix = c_.lane / 8, row = c_.lane % 8;
    const uint32_t key_at = keys + row * L::kRunPitch + (2 * unit + matrix / 2) * Dim * 2 + matrix % 2 * 16;
    const uint32_t query_at =
        shared_address(c_.shared) + L::kQueries + (row * L::kQueryPitch + matrix * 8) * 2;
#pragma unroll
    for (int k = 0; k < Dim / 16; k += 2) {
      uint32_t q[4], first[4], second[4];
      load_matrices(query_at + k * 32, q);
      load_matrices(key_at + k * 32, first);
      load_matrices(key_at + k * 32 + 32, second);
      mma_eight(scores[0], q[0], q[1], first[0], first[1]);
      mma_eight(scores[1], q[0], q[1], first[2], first[3]);
      mma_eight(scores[0], q[2], q[3], second[0], second[1]);
      mma_eight(scores[1], q[2], q[3], second[2], second[3]);
    }
    uint32_t mask[2] = {};
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool counts = (2 * c_.t + e) * 8 + 2 * unit + i < limit;
        scores[i][e] = counts ? scores[i][e] * p_.scale * kLog2E : -INFINITY;
        mask[i] |= counts ? 0xffffu << (16 * e) : 0u;
        most = fmaxf(most, scores[i][e]);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const float maximum = fmaxf(own.maximum, most), shrink = power_of_two(own.maximum - maximum);
    own.maximum = maximum;
    own.sum *= shrink;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) own.sum += scores[i][e] = power_of_two(scores[i][e] - maximum);
    }
    const uint32_t low = pack_pair(scores[0][0], scores[0][1]), high = pack_pair(scores[1][0], scores[1][1]);
    const uint32_t value_at =
        values + row * L::kRunPitch + (2 * unit + matrix % 2) * Dim * 2 + matrix / 2 * 16;
#pragma unroll
    for (int d = 0; d < Dim / 8; d += 2) {
      uint32_t b[4];
      load_matrices_transposed(value_at + d * 16, b);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        own.values[d + i][0] *= shrink, own.values[d + i][1] *= shrink;
        mma_eight(own.values[d + i], low, high, b[2 * i] & mask[0], b[2 * i + 1] & mask[1]);
      }
    }
  }
  __device__ __forceinline__ void add_tiles(Own& own, const Segment& s) {
    const int context = c_.plan.contexts[s.token], unit = c_.warp % 4;
#pragma unroll 1
    for (int tile = s.tile; tile < s.end; ++tile) {
      const Cursor keys = c_.cursor;
      c_.cursor.advance();
      const Cursor values = c_.cursor;
      c_.cursor.advance();
      keys.wait_full();
      values.wait_full();
      const int limit = context - tile * kTile;
      if ((tile - s.tile) % (kWarps / 4) == c_.warp / 4 && 2 * unit < limit) {
        const int own_key = limit - 1;
        if (limit <= kTile && own_key % 8 / 2 == unit) {
          patch(keys.at(), L::kNewKey, own_key);
          patch(values.at(), L::kNewValue, own_key);
          __syncwarp();
        }
        add_keys(own, keys.at(), values.at(), unit, limit);
        // What was patched is overwritten by copies.
        if (limit <= kTile) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      }
      __syncwarp();
      if (c_.lane == 0) barrier_arrive(keys.empty_barrier()), barrier_arrive(values.empty_barrier());
    }
  }
  __device__ __forceinline__ void attend(const Segment& s) {
    take_heads(s);
    sync_consumers();
    Own own;
    add_tiles(own, s);
    own.sum += __shfl_xor_sync(0xffffffffu, own.sum, 1);
    own.sum += __shfl_xor_sync(0xffffffffu, own.sum, 2);
    auto* const sums = reinterpret_cast<float2*>(c_.shared + L::kSums);
    if (c_.t == 0) sums[c_.warp * 8 + c_.g] = make_float2(own.maximum, own.sum);
    if (c_.g < group_ && own.maximum > -INFINITY) {
      float* const to = c_.whole_parts() + (c_.warp * group_ + c_.g) * Dim + 2 * c_.t;
#pragma unroll
      for (int d = 0; d < Dim / 8; ++d)
        *reinterpret_cast<float2*>(to + d * 8) = make_float2(own.values[d][0], own.values[d][1]);
    }
    sync_consumers();
    const int warps = min(kWarps, 4 * (s.end - s.tile));
#pragma unroll 1
    for (int e = threadIdx.x; e < group_ * Dim / 2; e += kWarps * 32) hand_over(s, sums, e, warps);
    sync_consumers();
  }
  // Values 2 e and the next of the pair's heads, and their head's maximum and sum, of all warps.
  __device__ __forceinline__ float4 sum_of_warps(const float2* sums, int e, int warps) const {
    const int head = e / (Dim / 2);
    float2 parts[kWarps], values[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      parts[w] = w < warps ? sums[w * 8 + head] : make_float2(-INFINITY, 0.0f);
      values[w] = make_float2(0.0f, 0.0f);
      if (parts[w].x > -INFINITY)
        values[w] = *reinterpret_cast<const float2*>(c_.whole_parts() + w * group_ * Dim + e * 2);
    }
    float4 all = make_float4(0.0f, 0.0f, -INFINITY, 0.0f);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) all.z = fmaxf(all.z, parts[w].x);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = power_of_two(parts[w].x - all.z);  // 0 where the warp has none
      all.x += factor * values[w].x, all.y += factor * values[w].y, all.w += factor * parts[w].y;
    }
    return all;
  }
  __device__ __forceinline__ void hand_over(const Segment& s, const float2* sums, int e, int warps) {
    const float4 all = sum_of_warps(sums, e, warps);
    if (s.parts == 1) return hand1(result(s) + e, pack_pair(all.x / all.w, all.y / all.w));
    if (c_.plan.paired) return meet(s, e, all);
    uint32_t* const part = part_of(blockIdx.x, s.slot);
    hand2(part + 16 + e * 2, all.x, all.y);
    if (e % (Dim / 2) == 0) hand2(part + e / (Dim / 2) * 2, all.z, all.w);
  }
  // Each block of a pair gets the other's part of one half of the words, of which a thread has one.
  __device__ __forceinline__ void meet(const Segment& s, int e, float4 all) {
    const int half = group_ * Dim / 4, own = s.part;
    const uint32_t theirs = shared_address(c_.shared) + L::kTheirs + e % half * 16,
                   barrier = shared_address(c_.shared) + L::kPair;
    if (threadIdx.x == 0) barrier_expect(barrier, half * 16);
    if (e / half != own) {
      const auto other = static_cast<uint32_t>(1 - own);
      return hand_across(address_in(theirs, other), address_in(barrier, other), all);
    }
    wait_across(barrier, parity_);
    const uint4 words = load_shared(theirs);
    const float x = __uint_as_float(words.x), y = __uint_as_float(words.y), m = __uint_as_float(words.z),
                sum = __uint_as_float(words.w), maximum = fmaxf(all.z, m),
                mine = power_of_two(all.z - maximum), other = power_of_two(m - maximum),
                whole = all.w * mine + sum * other;
    hand1(result(s) + e, pack_pair((all.x * mine + x * other) / whole, (all.y * mine + y * other) / whole));
  }
  __device__ __forceinline__ uint32_t* result(const Segment& s) {
    return set_ + p_.layout.attended + (s.token * p_.heads + s.head * group_) * (Dim / 2);
  }
  __device__ __forceinline__ uint32_t* part_of(int block, int slot) {
    return set_ + p_.layout.parts + (block * 2 + slot) * p_.layout.part_words;
  }
  // The block's share of the pair's results. Eight lanes have one word of them, each some of the parts.
  __device__ __forceinline__ void merge(const Segment& s) {
    constexpr int kDeep = 4;
    const int words = group_ * Dim / 2, lane8 = c_.lane % 8;
    const int begin = s.part * words / s.parts, end = (s.part + 1) * words / s.parts;
#pragma unroll 1
    for (int base = begin; base < end; base += kWarps * 4) {
      const int e = base + static_cast<int>(threadIdx.x) / 8;
      const bool live = e < end;
      const int head = live ? e / (Dim / 2) : 0;
      float maximum = -INFINITY, sum = 0.0f;
      float2 value = make_float2(0.0f, 0.0f);
      const auto add = [&](float m, float l, float x, float y) {
        if (m == -INFINITY) return;
        const float next = fmaxf(maximum, m), mine = power_of_two(maximum - next),
                    other = power_of_two(m - next);
        maximum = next;
        sum = sum * mine + l * other;
        value.x = value.x * mine + x * other, value.y = value.y * mine + y * other;
      };
#pragma unroll 1
      for (int first = 0; first < s.parts; first += 8 * kDeep) {
        uint2 sums[kDeep], values[kDeep];
        const uint32_t* from[kDeep];
#pragma unroll
        for (int k = 0; k < kDeep; ++k) {
          const int part = first + k * 8 + lane8;
          const bool any = live && part < s.parts;
          from[k] = any ? part_of(s.first_block + part, part == 0 ? s.first_slot : 0) : nullptr;
          sums[k] = any ? look2(from[k] + head * 2) : make_uint2(__float_as_uint(-INFINITY), 0);
          values[k] = any ? look2(from[k] + 16 + e * 2) : make_uint2(0, 0);
        }
#pragma unroll 1
        while (true) {
          bool again = false;
#pragma unroll
          for (int k = 0; k < kDeep; ++k) {
            if (there(sums[k]) && there(values[k])) continue;
            again = true;
            sums[k] = look2(from[k] + head * 2), values[k] = look2(from[k] + 16 + e * 2);
          }
          if (!again) break;
        }
#pragma unroll
        for (int k = 0; k < kDeep; ++k)
          add(__uint_as_float(sums[k].x), __uint_as_float(sums[k].y), __uint_as_float(values[k].x),
              __uint_as_float(values[k].y));
      }
      __syncwarp();
#pragma unroll
      for (int o = 1; o < 8; o <<= 1)
        add(__shfl_xor_sync(0xffffffffu, maximum, o), __shfl_xor_sync(0xffffffffu, sum, o),
            __shfl_xor_sync(0xffffffffu, value.x, o), __shfl_xor_sync(0xffffffffu, value.y, o));
      if (live && lane8 == 0) hand1(result(s) + e, pack_pair(value.x / sum, value.y / sum));
    }
  }

  Consumer<Dim>& c_;
  const StackParams& p_;
  const StackLayer& layer_;
  uint32_t* const set_;
  const int group_;
  const uint32_t parity_;
};

}  // namespace sluice::kernels::cuda::stack
