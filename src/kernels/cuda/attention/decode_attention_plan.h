// How decode_attention.cu shares out its work: units of 64 keys, in the order of (token, kv head, key), and the ranges of them
// that go to one block each. Made on the host once for all layers of a kind, so that a block knows at once where it
// starts. Numbers of units fit into an int: 2^31 units of 16 KiB are more than any memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::cuda {

inline constexpr int kKeys = 64;  // of a unit

// The first key that a token at `position` sees; window 0: all.
constexpr int first_key(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}
constexpr int units_of(int position, int window) {
  return position / kKeys - first_key(position, window) / kKeys + 1;
}

// Things in equal parts, of which the first are one longer where it does not come out even.
struct EvenParts {
  int parts, length, longer;

  static constexpr EvenParts of(int all, int parts) { return {parts, all / parts, all % parts}; }
  constexpr int start(int part) const { return part * length + (part < longer ? part : longer); }
  constexpr int part_of(int thing) const {
    const int border = longer * (length + 1);
    return thing < border ? thing / (length + 1) : longer + (thing - border) / length;
  }
};

// The units cut into ranges. The first are one for each block, equally long. Where there is much to read these leave some
// units over, in short ranges that go to whoever is done first: multiprocessors do not always read equally fast (on one
// H200 a fifth of them read a quarter more than the others), and none shall idle while others read.
inline constexpr int kMaxShort = 2048;
struct Ranges {
  int all;            // units
  int fixed;          // those of the blocks' own ranges
  EvenParts own;      // with heads left whole, a range starts with the next head
  int count, length;  // ranges in all; units of a short one
  int whole;

  constexpr int start_of_short(int range) const {
    return range >= count ? all : fixed + (range - own.parts) * length;
  }
  // The range of a unit, where heads are cut.
  constexpr int range_of(int unit) const {
    return unit < fixed ? own.part_of(unit) : own.parts + (unit - fixed) / length;
  }
};

// Units [at, last) of all, one (token, head) after the other.
struct Walk {
  int at, last;
  int token, head, unit, units;  // units: of this token and head

  // first_unit: [tokens + 1], units of one kv head before each token.
  static constexpr Walk from(const int* first_unit, int tokens, int kv_heads, int begin, int end) {
    int low = 0, high = tokens - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_unit[middle] * kv_heads <= begin) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int units = first_unit[low + 1] - first_unit[low], within = begin - first_unit[low] * kv_heads;
    return {begin, end, low, within / units, within % units, units};
  }
  constexpr bool live() const { return at < last; }
  // Units of this head that belong to the range.
  constexpr int count() const { return last - at < units - unit ? last - at : units - unit; }
  constexpr void next(const int* first_unit, int kv_heads) {
    at += count();
    unit = 0;
    if (++head < kv_heads || !live()) return;
    head = 0;
    ++token;
    units = first_unit[token + 1] - first_unit[token];
  }
};

// What block `b` begins with: its own range, the position of its first token and that one's row of the block table.
struct DecodeAttentionStart {
  Walk walk;
  int position, row;
};

// Tokens that attend each for itself.
struct DecodeAttentionPlan {
  std::span<const int32_t> positions, rows;  // rows: first entry of each token's row of the block table
  int kv_heads, window, blocks;              // blocks: of the launch
  bool whole;                                // no head is shared between blocks
};
// Ranges, then DecodeAttentionStart [blocks], then first_unit [tokens + 1]: as many numbers for any positions.
std::vector<int32_t> plan_decode_attention(const DecodeAttentionPlan& tokens);

// A cluster of `blocks` blocks for every kv head of every token, as decode_attention_few.cu has them; 0: there are too many
// heads for that.
struct HeadClusters {
  int kv_heads, window, blocks, processors;
};
// Whether the longest head keeps its blocks busy for no longer than all units keep all multiprocessors, and the merge of
// parts that clusters do not have.
bool clusters_are_faster(std::span<const int32_t> positions, const HeadClusters& clusters);

inline constexpr int kRangesInts = sizeof(Ranges) / 4, kStartInts = sizeof(DecodeAttentionStart) / 4;
static_assert(kRangesInts == 8 && kStartInts == 8, "read as two vectors each");

}  // namespace sluice::kernels::cuda
