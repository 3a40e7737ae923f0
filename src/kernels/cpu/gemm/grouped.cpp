// Mixtures: the GEMMs of all experts at once.
//
// Shapes: x [n, dim]; an expert multiplies its tokens with gate_up [2 * inner, dim] and with down [dim, inner]. Tokens lie by
// expert (expert_groups.h), so that each expert's weights are read once per step. Two regions do the work: gate and up with the
// activation, and the forms that down reads; then down. What threads take is a range of (expert, 32 rows) in the order of the
// weights, cut so that every task has about the same number of rows times tokens, whichever experts they belong to. Two more
// regions make the forms of x, once for each token, and sum up results in slot order. The GEMMs are those of dense weights, and
// no sum depends on how rows and tokens are cut. Bytes moved: the weights of the experts that have tokens.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/expert_groups.h"
#include "kernels/host.h"

namespace sluice::kernels::cpu {

namespace {

// Reading a row costs as much as multiplying it with this many tokens.
constexpr int64_t kReading = 3;
constexpr int64_t kSumColumns = 1024;

// Whether group of 32 rows r of gate, and of up, holds rows [32 r, 32 r + 32) of it.
bool splits_evenly(const Weight& weight, int64_t inner) {
  const auto all_parts = [&](const auto& holds) {
    return std::all_of(weight.parts.begin(), weight.parts.end(), holds);
  };
  return all_parts([&](const TensorView& part) { return part.dim(0) == inner; }) ||
         (inner % kRowGroup == 0 &&
          all_parts([](const TensorView& part) { return part.dim(0) % kRowGroup == 0; }));
}

// Whether all of the weight is multiplied with x as it is.
bool is_plain(const Weight& weight) {
  return weight.runs.empty() && !is_ordered(weight);
}

// The work of one region for each token of an expert: ranges of 32 rows, by `cols` multiplications for each row.
struct RowWork {
  int64_t ranges, cols;
};

// Calls task(group, range) for ranges of the rows of each group until all are covered, on all threads.
template <class Task>
void for_ranges_of(ThreadPool& pool, const ExpertGroups& groups, RowWork work, const Task& task) {
  const int64_t total = work.ranges * (groups.pairs() + kReading * static_cast<int64_t>(groups.all().size()));
  const int64_t worthwhile = groups.pairs() * work.ranges * kRowGroup * work.cols / kSmallestTask + 1;
  const int64_t tasks = std::min<int64_t>(worthwhile, pool.threads() == 1 ? 1 : int64_t{4} * pool.threads());
  pool.run(static_cast<int>(tasks), [&](int i) {
    const int64_t from = total * i / tasks, to = total * (i + 1) / tasks;
    int64_t first = 0;  // cost of the groups before
    for (const ExpertGroup& group : groups.all()) {
      const int64_t cost = group.count + kReading;
      const auto range_at = [&](int64_t at) {  // the first range that begins at `at` or behind it
        return std::clamp<int64_t>((at - first + cost - 1) / cost, 0, work.ranges);
      };
      if (first >= to) return;
      const RowGroups range{range_at(from), range_at(to)};
      if (range.begin < range.end) task(group, range);
      first += work.ranges * cost;
    }
  });
}

}  // namespace

// One call of moe_ffn.
struct CpuBackend::ExpertStep {
  TensorView x, ids, weights;
  const ExpertBank& bank;
  int64_t inner, wide;  // wide: of a row of `hidden`
  float* rows;          // [pairs, dim] what experts read, where that is f32 of their own; then what they give
  float* hidden;        // [pairs, wide] gate and up, then what is activated in the place of gate
  bool gathers;         // whether `rows` holds what experts read
  ExpertForms of_x, of_inner;  // what the GEMMs read besides

  int64_t dim() const { return x.dim(1); }
  TensorView rows_of(const ExpertGroup& group) const {
    return TensorView::contiguous(rows + group.begin * dim(), DType::F32, {group.count, dim()});
  }
  TensorView hidden_of(const ExpertGroup& group) const {
    return TensorView::contiguous(hidden + group.begin * wide, DType::F32, {group.count, wide});
  }
  TensorView inner_of(const ExpertGroup& group) const { return hidden_of(group).columns(0, inner); }
};

// hidden = activation(gate) * up in columns of a row that holds gate, then up.
void CpuBackend::activate_hidden(const ExpertStep& step, float* hidden, ColumnRange columns) const {
  const ExpertBank& bank = step.bank;
  float* gate = hidden + columns.begin;
  float* up = gate + step.inner;
  const int64_t width = columns.end - columns.begin;
  if (!bank.gated) return kernels_.activate(gate, gate, width, bank.activation);
  if (bank.limit <= 0.0f) return kernels_.gate(gate, gate, up, width, bank.activation);
  kernels_.activate(gate, gate, width, bank.activation);
  kernels_.clamp(gate, bank.limit, width);
  kernels_.clamp(up, bank.limit, width);
  kernels_.gate(gate, gate, up, width, Activation::Identity);
}

// A token is made into each form once, unless a slot's weight multiplies it first.
void CpuBackend::read_experts_input(const ExpertStep& step) {
  const int64_t slots = step.ids.dim(1), dim = step.dim();
  for_rows(step.x.dim(0), slots * dim / 2, [&](int64_t token) {
    ExpertForms::Made made;
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int64_t pair = groups_.place(token, slot);
      if (pair < 0) continue;
      const ExpertGroup& group = groups_.of(step.ids.at<int32_t>(token)[slot] - step.bank.first);
      const float* row = step.x.at<float>(token);
      if (step.gathers) {
        float* own = step.rows + pair * dim;
        std::copy_n(row, dim, own);
        row = own;
        if (step.bank.weigh_inputs) {
          kernels_.multiply(own, step.weights.at<float>(token)[slot], dim);
          made = {};
        }
      }
      step.of_x.make_or_copy(group, pair, row, made);
    }
  });
  if (!step.of_x.has_tiles()) return;
  constexpr int64_t kColumns = 512;
  const int64_t pieces = (dim + kColumns - 1) / kColumns;
  const auto groups = groups_.all();
  for_rows(static_cast<int64_t>(groups.size()) * pieces,
           groups_.pairs() * kColumns / static_cast<int64_t>(groups.size()), [&](int64_t i) {
             const ExpertGroup& group = groups[static_cast<size_t>(i / pieces)];
             const int64_t begin = i % pieces * kColumns;
             step.of_x.make_tiles(group, step.rows_of(group), {begin, std::min(begin + kColumns, dim)});
           });
}

void CpuBackend::run_experts_grouped(const ExpertStep& step) {
  const ExpertBank& bank = step.bank;
  const int64_t ranges = (step.inner + kRowGroup - 1) / kRowGroup;
  for_ranges_of(pool_, groups_, {ranges, 2 * step.dim()}, [&](const ExpertGroup& group, RowGroups range) {
    const Weight& gate_up = bank.gate_up[group.expert];
    const TensorView x = step.rows_of(group), hidden = step.hidden_of(group);
    const Activations activations = step.of_x.of(group, x);
    gemm_groups(hidden, x, gate_up, activations, range);
    if (bank.gated) gemm_groups(hidden, x, gate_up, activations, {ranges + range.begin, ranges + range.end});
    const ColumnRange columns{range.begin * kRowGroup, std::min(range.end * kRowGroup, step.inner)};
    for (int64_t i = 0; i < group.count; ++i) {
      activate_hidden(step, hidden.at<float>(i), columns);
      step.of_inner.make_row(group, group.begin + i, hidden.at<float>(i), columns);
    }
    step.of_inner.make_tiles(group, step.inner_of(group), columns);
  });
  int64_t most = 0;
  for (const ExpertGroup& group : groups_.all()) most = std::max(most, row_groups(bank.down[group.expert]));
  for_ranges_of(pool_, groups_, {most, step.inner}, [&](const ExpertGroup& group, RowGroups range) {
    const TensorView inner = step.inner_of(group);
    gemm_groups(step.rows_of(group), inner, bank.down[group.expert], step.of_inner.of(group, inner), range);
  });
}

// One expert after the other, each with all threads: for GEMMs that somebody watches, matrices whose columns lie in
// another order, and those whose gate and up meet within a group of rows.
void CpuBackend::run_experts_singly(const ExpertStep& step) {
  for (const ExpertGroup& group : groups_.all()) {
    const TensorView hidden = step.hidden_of(group), rows = step.rows_of(group);
    matmul(hidden, rows, step.bank.gate_up[group.expert]);
    for_rows(group.count, step.inner, [&](int64_t i) {
      activate_hidden(step, hidden.at<float>(i), {0, step.inner});
    });
    matmul(rows, step.inner_of(group), step.bank.down[group.expert]);
  }
}

void CpuBackend::add_up_experts(TensorView out, const ExpertStep& step) {
  const int64_t slots = step.ids.dim(1), dim = step.dim();
  const int64_t pieces = (dim + kSumColumns - 1) / kSumColumns;
  for_rows(out.dim(0) * pieces, slots * std::min(dim, kSumColumns), [&](int64_t i) {
    const int64_t token = i / pieces, begin = i % pieces * kSumColumns;
    const int64_t width = std::min(kSumColumns, dim - begin);
    float* to = out.at<float>(token) + begin;
    std::fill(to, to + width, 0.0f);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int64_t pair = groups_.place(token, slot);
      if (pair < 0) continue;
      const float weight = step.bank.weigh_inputs ? 1.0f : step.weights.at<float>(token)[slot];
      kernels_.add_scaled(to, to, step.rows + pair * dim + begin, weight, width);
    }
  });
}

void CpuBackend::moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights,
                         const ExpertBank& bank) {
  SLUICE_CHECK_EQ(out.dim(1), x.dim(1));
  groups_.assign(ids, bank);
  Needs of_x, of_inner;
  bool singly = observer_ != nullptr;
  int64_t inner = 0, wide = 0;
  for (const ExpertGroup& group : groups_.all()) {
    const Weight &gate_up = bank.gate_up[group.expert], &down = bank.down[group.expert];
    inner = down.cols;
    wide = gate_up.rows;
    SLUICE_CHECK_EQ(wide, bank.gated ? 2 * inner : inner);
    SLUICE_CHECK_EQ(gate_up.cols, x.dim(1));
    SLUICE_CHECK_EQ(down.rows, out.dim(1));
    SLUICE_CHECK_EQ(down.cols, bank.down[groups_.all()[0].expert].cols);
    singly = singly || !splits_evenly(gate_up, inner) || !is_plain(gate_up) || !is_plain(down);
    of_x |= Needs(gate_up, {kernels_, panel_kernels_});
    of_inner |= Needs(down, {kernels_, panel_kernels_});
  }
  SLUICE_CHECK(bank.gated || bank.activation != Activation::SwigluOai);
  if (singly) of_x = of_inner = {};
  const bool gathers = singly || bank.weigh_inputs || of_x.floats || of_x.words || of_x.columns;
  const Kernels kernels{kernels_, panel_kernels_};
  const ExpertStep step{.x = x,
                        .ids = ids,
                        .weights = weights,
                        .bank = bank,
                        .inner = inner,
                        .wide = wide,
                        .rows = grown(expert_rows_, groups_.pairs() * x.dim(1)),
                        .hidden = grown(expert_hidden_, groups_.pairs() * wide),
                        .gathers = gathers,
                        .of_x = ExpertForms(kernels, of_x, x.dim(1), groups_, forms_),
                        .of_inner = ExpertForms(kernels, of_inner, inner, groups_, inner_forms_)};
  if (groups_.pairs() > 0) {
    read_experts_input(step);
    if (singly) {
      run_experts_singly(step);
    } else {
      run_experts_grouped(step);
    }
  }
  add_up_experts(out, step);
}

}  // namespace sluice::kernels::cpu
