// What is left of a row after top-k, min-p and top-p, and the pick among it.
#pragma once

#include "kernels/cuda/sampling/sample_adjust.cuh"

namespace sluice::kernels::cuda::sampling {

// Elements by key, from `top` down, as far as the table goes.
template <class Row>
__device__ void count_steps(const Row& row, uint32_t top, Shared& s) {
  for (uint32_t i = threadIdx.x; i < kSteps; i += kThreads) s.steps[i] = 0;
  if (threadIdx.x == 0) s.count_cut = s.mass_cut = -1;
  __syncthreads();
  scan(row, [&](int64_t, int count, const float* f) {
    for (int j = 0; j < count; ++j) {
      const uint32_t step = top - row.key_of(f[j]);
      if (step < kSteps) atomicAdd(&s.steps[step], 1u);
    }
  });
  __syncthreads();
}

// The step at which `wanted` elements are reached, and how many lie above; -1: not in the table. count(i): of a step.
template <class Count>
__device__ int32_t count_cut(int32_t wanted, const Count& count, Shared& s) {
  const int32_t first = static_cast<int32_t>(threadIdx.x) * 2;
  const int32_t mine = count(first), next = count(first + 1);
  int32_t total = 0;
  const int32_t before = sum_before(mine + next, s.counts, total);
  if (before < wanted && before + mine + next >= wanted) {
    s.count_cut = before + mine >= wanted ? first : first + 1;
    s.count_above = before + mine >= wanted ? before : before + mine;
  }
  __syncthreads();
  return s.count_cut;
}

// The weight of all elements in the table; with a goal also the step at which it is reached, and the weight above that.
// mass(i): of a step.
template <class Mass>
__device__ double mass_cut(double goal, const Mass& mass, Shared& s) {
  const int32_t first = static_cast<int32_t>(threadIdx.x) * 2;
  const double mine[2] = {mass(first), mass(first + 1)};
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

template <class Row>
__device__ void keep_nucleus(const Row& row, double goal, const Cut& cut, Kept& kept) {
  const double each = row.weight(row.value_of(cut.key));
  const double ties = each > 0 ? ceil((goal - cut.above) / each) : 1;
  kept.key = cut.key;
  kept.ties = static_cast<int32_t>(fmin(fmax(ties, 1.0), 1e9));
  kept.floor = fmaxf(kept.floor, row.value_of(cut.key));
  kept.total = cut.above + kept.ties * each;
}

template <class Row>
__device__ double weight_from(const Row& row, float floor, Shared& s) {
  float mine = 0;
  scan(row, [&](int64_t, int count, const float* f) {
    for (int j = 0; j < count; ++j)
      if (f[j] >= floor) mine += row.weight(f[j]);
  });
  return block_sum(mine, s);
}

// A row has few keys near its largest: they are counted once, and all cuts are found among them. Where they do not
// reach, the cuts are found by four bits of the key at a time, which reads the row four times.
template <bool Vector, bool Masked>
__device__ Kept filter(const PlainRow<Vector, Masked>& row, const SampleArgs& how, Shared& s) {
  Kept kept;
  kept.floor = row.largest + how.floor;
  const uint32_t top = row.key_of(row.largest);
  const auto value = [&](int32_t step) { return row.value_of(top - static_cast<uint32_t>(step)); };
  const auto mass = [&](int32_t step) {
    const uint32_t count = s.steps[step];
    const float v = count > 0 ? value(step) : 0.0f;
    return count > 0 && v >= kept.floor ? static_cast<double>(count) * row.weight(v) : 0.0;
  };
  count_steps(row, top, s);
  if (how.top_k > 0 && how.top_k < row.width) {
    const int32_t step = count_cut(
        how.top_k, [&](int32_t i) { return static_cast<int32_t>(s.steps[i]); }, s);
    const float least =
        step >= 0 ? value(step) : row.value_of(find_cut<false>(row, -INFINITY, how.top_k, s).key);
    kept.floor = fmaxf(kept.floor, least);
  }
  const bool in_table = top >= kSteps && kept.floor >= value(kSteps - 1);
  kept.total = in_table ? mass_cut(INFINITY, mass, s) : weight_from(row, kept.floor, s);
  if (how.top_p < 1.0f) {
    const double goal = static_cast<double>(how.top_p) * kept.total;
    mass_cut(goal, mass, s);
    Cut cut{top - static_cast<uint32_t>(max(s.mass_cut, 0)), s.mass_above};
    if (s.mass_cut < 0) cut = find_cut<true>(row, kept.floor, goal, s);
    keep_nucleus(row, goal, cut, kept);
  }
  return kept;
}

// The table of an edited row: what came as it is by its key, edited tokens by the upper half of theirs. A step that has
// both is looked into, which needs the list of edits alone.
template <class Plain>
struct EditedTable {
  const EditedRow<Plain>& row;
  Shared& s;
  uint32_t top;

  __device__ uint32_t step_of(float v) const { return top - (row.key_of(v) >> 16); }
  __device__ float plain_value(int32_t step) const {
    return Plain::value_of(top - static_cast<uint32_t>(step));
  }

  __device__ void count() const {
    for (uint32_t i = threadIdx.x; i < kSteps; i += kThreads) s.edited[i] = 0;
    count_steps(row.plain, top, s);
    row.each_edit([&](int32_t token, float value) {
      const uint32_t before = step_of(row.plain.value(token)), after = step_of(value);
      if (before < kSteps) atomicSub(&s.steps[before], 1u);
      if (after < kSteps) atomicAdd(&s.edited[after], 1u);
    });
    __syncthreads();
  }

  // Weights within a step are so alike (at temperatures from 0.01 on) that f64 adds them exactly, in whatever order.
  __device__ void weigh(float floor) const {
    for (uint32_t i = threadIdx.x; i < kSteps; i += kThreads) s.edited_weight[i] = 0.0;
    __syncthreads();
    row.each_edit([&](int32_t, float value) {
      const uint32_t step = step_of(value);
      if (step < kSteps && value >= floor) atomicAdd(&s.edited_weight[step], double{row.weight(value)});
    });
    __syncthreads();
  }

  __device__ double mass(int32_t step, float floor) const {
    const uint32_t count = s.steps[step];
    const float v = count > 0 ? plain_value(step) : 0.0f;
    const double plain = count > 0 && v >= floor ? static_cast<double>(count) * row.weight(v) : 0.0;
    return plain + s.edited_weight[step];
  }

  template <bool Weights>
  __device__ Cut look_into(int32_t step, double above, float floor, double goal) const {
    const float plain = plain_value(step);
    const uint32_t count = s.steps[step];
    const auto each = [&](const auto& take) {
      row.each_edit([&](int32_t, float value) {
        if (value >= floor) take(value, 1.0f);
      });
      if (threadIdx.x == 32 && count > 0 && plain >= floor) take(plain, static_cast<float>(count));
    };
    return refine<Weights>(row, 16, {top - static_cast<uint32_t>(step), above}, goal, each, s);
  }
};

template <class Plain>
__device__ Kept filter(const EditedRow<Plain>& row, const SampleArgs& how, Shared& s) {
  Kept kept;
  kept.floor = row.largest + how.floor;
  const EditedTable<Plain> table{row, s, row.key_of(row.largest) >> 16};
  table.count();
  if (how.top_k > 0 && how.top_k < row.width) {
    const auto count = [&](int32_t i) { return static_cast<int32_t>(s.steps[i] + s.edited[i]); };
    const int32_t step = count_cut(how.top_k, count, s);
    const Cut cut = step >= 0 ? table.template look_into<false>(step, s.count_above, -INFINITY, how.top_k)
                              : find_cut<false>(row, -INFINITY, how.top_k, s);
    kept.floor = fmaxf(kept.floor, row.value_of(cut.key));
  }
  table.weigh(kept.floor);
  const auto mass = [&](int32_t step) { return table.mass(step, kept.floor); };
  const bool in_table = table.top >= kSteps && kept.floor >= table.plain_value(kSteps - 1);
  kept.total = in_table ? mass_cut(INFINITY, mass, s) : weight_from(row, kept.floor, s);
  if (how.top_p < 1.0f) {
    const double goal = static_cast<double>(how.top_p) * kept.total;
    mass_cut(goal, mass, s);
    const Cut cut = s.mass_cut >= 0
                        ? table.template look_into<true>(s.mass_cut, s.mass_above, kept.floor, goal)
                        : find_cut<true>(row, kept.floor, goal, s);
    keep_nucleus(row, goal, cut, kept);
  }
  return kept;
}

// The first token at which the sum of kept weights exceeds `target`; the last of any weight where rounding keeps the
// sum below. Ends with the token in s.token.
template <class Row>
__device__ void pick(const Row& row, const Kept& kept, double target, Shared& s) {
  double running = 0;
  int32_t ties_seen = 0, last = -1;
  bool found = false;
  for (int64_t tile = 0; tile < row.width && !found; tile += kTile) {
    look_at(row, tile, [&](int64_t first, int count, const float* f) {
      int32_t ties = 0, all_ties = 0, rank = 0;
      const bool limited = kept.ties != INT32_MAX;
      if (limited) {
        for (int j = 0; j < count; ++j) ties += row.key_of(f[j]) == kept.key ? 1 : 0;
        rank = ties_seen + sum_before(ties, s.counts, all_ties);
        ties_seen += all_ties;
      }
      float weights[8];
      double mine = 0, total = 0;
      for (int j = 0; j < count; ++j) {
        bool in = f[j] >= kept.floor;
        if (limited && row.key_of(f[j]) == kept.key) in = rank++ < kept.ties;
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

}  // namespace sluice::kernels::cuda::sampling
