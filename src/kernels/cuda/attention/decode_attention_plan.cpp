#include "kernels/cuda/attention/decode_attention_plan.h"

#include <algorithm>
#include <cstring>

namespace sluice::kernels::cuda {

namespace {

struct Planner {
  const DecodeAttentionPlan& tokens;
  std::vector<int32_t> first_unit{0};

  explicit Planner(const DecodeAttentionPlan& all) : tokens(all) {
    for (const int32_t position : all.positions)
      first_unit.push_back(first_unit.back() + units_of(position, all.window));
  }
  int all() const { return first_unit.back() * tokens.kv_heads; }
  Walk walk(int begin, int end) const {
    return Walk::from(first_unit.data(), static_cast<int>(tokens.positions.size()), tokens.kv_heads, begin,
                      end);
  }
  // The first unit from `at` on with which a head begins.
  int next_head(int at) const {
    if (at >= all()) return all();
    const Walk here = walk(at, all());
    return here.unit == 0 ? at : at + here.units - here.unit;
  }
  int start(const EvenParts& own, bool whole, int part) const {
    return whole ? next_head(own.start(part)) : own.start(part);
  }
  // Whether heads are left whole: asked for, or because the block with the most to read then has little more than all
  // have when heads are cut, and need not wait for the parts of others.
  bool leave_whole(const EvenParts& own) const {
    // Units of a block: with fewer, a head is too long for one block; with more, the parts cost little.
    constexpr int kFewest = 8, kMost = 128;
    constexpr int kMerge = 2;  // units that are read while parts are merged
    if (tokens.whole) return true;
    if (own.length < kFewest || own.length >= kMost) return false;
    int longest = 0;
    for (int part = 0; part < own.parts; ++part)
      longest = std::max(longest, start(own, true, part + 1) - start(own, true, part));
    return longest <= own.length + 1 + kMerge;
  }
  Ranges ranges() const {
    constexpr int kMuch = 192;   // units of a block
    constexpr int kLength = 10;  // shorter ones cost more for their ends than they even out
    const EvenParts own = EvenParts::of(all(), std::min(all(), tokens.blocks));
    const bool whole = leave_whole(own);
    if (whole || own.length < kMuch) return {all(), all(), own, own.parts, 1, whole ? 1 : 0};
    const int left = all() / 16, length = std::max(kLength, (left + kMaxShort - 1) / kMaxShort);
    const int fixed = all() - left;
    return {all(),  fixed, EvenParts::of(fixed, own.parts), own.parts + (left + length - 1) / length,
            length, 0};
  }
};

template <class T>
void append(std::vector<int32_t>& out, const T& value) {
  const size_t at = out.size();
  out.resize(at + sizeof value / sizeof(int32_t));
  std::memcpy(out.data() + at, &value, sizeof value);
}

}  // namespace

std::vector<int32_t> plan_decode_attention(const DecodeAttentionPlan& tokens) {
  const Planner planner(tokens);
  const Ranges ranges = planner.ranges();
  std::vector<int32_t> plan;
  append(plan, ranges);
  for (int block = 0; block < tokens.blocks; ++block) {
    DecodeAttentionStart start{};
    if (block < ranges.own.parts) {
      const bool whole = ranges.whole != 0;
      const int begin = planner.start(ranges.own, whole, block);
      const int end =
          block + 1 < ranges.own.parts ? planner.start(ranges.own, whole, block + 1) : ranges.fixed;
      start.walk = planner.walk(std::min(begin, ranges.all - 1), end);
      start.walk.at = begin;  // a range without a head of its own starts where it ends
      const auto token = static_cast<size_t>(start.walk.token);
      start.position = tokens.positions[token];
      start.row = tokens.rows[token];
    }
    append(plan, start);
  }
  plan.insert(plan.end(), planner.first_unit.begin(), planner.first_unit.end());
  return plan;
}

bool clusters_are_faster(std::span<const int32_t> positions, const HeadClusters& clusters) {
  constexpr int64_t kMerge = 3;  // units that are read while parts are merged
  if (clusters.blocks == 0) return false;
  int64_t longest = 0, all = 0;
  for (const int32_t position : positions) {
    const int64_t units = units_of(position, clusters.window);
    longest = std::max(longest, units);
    all += units * clusters.kv_heads;
  }
  return (longest + clusters.blocks - 1) / clusters.blocks <= all / clusters.processors + kMerge;
}

}  // namespace sluice::kernels::cuda
