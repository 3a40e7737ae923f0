#include "lab/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/system/memory.h"

namespace sluice::lab {

namespace {

// Square matrices of a common width, of one type, prepared as a model's are.
class MatrixSet {
 public:
  static constexpr int64_t kWidth = 1536;

  MatrixSet(kernels::Backend& backend, DType type, int64_t bytes) {
    const int64_t each = row_bytes(type, kWidth) * kWidth;
    const int64_t count = std::clamp<int64_t>(bytes / each, 2, 64);
    for (int64_t i = 0; i < count; ++i) {
      // Every byte the same: 1.06 as f16, a small number as bf16, never one that slows the processor down.
      std::vector<std::byte>& memory = stored_.emplace_back(static_cast<size_t>(each), std::byte{0x3c});
      kernels::Weight weight;
      weight.parts = {TensorView::contiguous(memory.data(), type, {kWidth, kWidth})};
      weight.rows = weight.cols = kWidth;
      weights_.push_back(backend.prepare(std::move(weight)));
    }
  }
  double elements() const { return double(weights_.size()) * kWidth * kWidth; }
  const std::vector<kernels::Weight>& weights() const { return weights_; }

 private:
  std::vector<std::vector<std::byte>> stored_;
  std::vector<kernels::Weight> weights_;
};

template <class Call>
double best_seconds(const CalibrateOptions& options, Call&& call) {
  call();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.repeat; ++i) {
    const Stopwatch watch(options.time);
    call();
    best = std::min(best, watch.seconds());
  }
  return best;
}

kernels::Memory rows_of_ones(kernels::Backend& backend, int64_t rows, int64_t width) {
  kernels::Memory memory = backend.allocate(DType::F32, {rows, width});
  std::fill_n(static_cast<float*>(memory.view.data), rows * width, 0.5F);
  return memory;
}

void measure_gemms(Machine& machine, kernels::Backend& backend, const CalibrateOptions& options, DType type) {
  const MatrixSet set(backend, type, options.matrix_bytes);
  for (const int rows : options.rows) {
    const kernels::Memory x = rows_of_ones(backend, rows, MatrixSet::kWidth),
                          out = backend.allocate(DType::F32, {rows, MatrixSet::kWidth});
    const double seconds = best_seconds(options, [&] {
      for (const kernels::Weight& weight : set.weights()) backend.matmul(out.view, x.view, weight);
    });
    const double work = seconds - double(set.weights().size()) * machine.overhead;
    machine.gemms.push_back({type, rows, std::max(work, seconds / 2) / set.elements()});
  }
}

// Sequences of equal length, each with its own blocks, as a step has them.
struct AttentionStep {
  static constexpr int kHeads = 12, kKvHeads = 4, kDim = 64, kBlock = 16;

  AttentionStep(kernels::Backend& backend, int sequences, int queries, int context)
      : rows(sequences * queries), width((context + kBlock - 1) / kBlock) {
    const int64_t blocks = int64_t{width} * sequences;
    k = backend.allocate_kv(DType::F16, {blocks, kBlock, kKvHeads, kDim});
    v = backend.allocate_kv(DType::F16, {blocks, kBlock, kKvHeads, kDim});
    q = backend.allocate(DType::F32, {rows, kHeads, kDim});
    out = backend.allocate(DType::F32, {rows, kHeads, kDim});
    ids.resize(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    for (int s = 0; s <= sequences; ++s) begins.push_back(s * queries);
    for (int s = 0; s < sequences; ++s)
      for (int i = 0; i < queries; ++i) positions.push_back(context - queries + i);
    table = {ids, width};
  }
  double operations(int context, int queries) const {
    const double seen = context - (queries - 1) / 2.0;
    return 2.0 * rows * seen * kHeads * 2 * kDim;
  }
  void run(kernels::Backend& backend) const {
    const kernels::RaggedBatch batch{begins, positions, {&table, 1}};
    backend.begin(batch);
    backend.attend(
        out.view, q.view, {.k = k.view, .v = v.view, .k_scales = {}, .v_scales = {}, .table = 0}, batch,
        {.heads = kHeads, .kv_heads = kKvHeads, .key_dim = kDim, .value_dim = kDim, .scale = 0.125F});
  }

  int rows, width;
  kernels::Memory k, v, q, out;
  std::vector<int32_t> ids, begins, positions;
  kernels::RaggedBatch::BlockTable table;
};

double attention_rate(kernels::Backend& backend, const CalibrateOptions& options, int sequences,
                      int queries) {
  constexpr int kContext = 1024;
  const AttentionStep step(backend, sequences, queries, kContext);
  return step.operations(kContext, queries) / best_seconds(options, [&] { step.run(backend); });
}

// An operation on one row takes hardly longer than its start and its end.
double operation_overhead(kernels::Backend& backend, const CalibrateOptions& options) {
  constexpr int kCalls = 200;
  const kernels::Memory x = rows_of_ones(backend, 1, 64), out = backend.allocate(DType::F32, {1, 64});
  return best_seconds(options,
                      [&] {
                        for (int i = 0; i < kCalls; ++i) backend.rms_norm(out.view, x.view, {}, 1e-5F);
                      }) /
         kCalls;
}

double elementwise_seconds(kernels::Backend& backend, const CalibrateOptions& options) {
  constexpr int kRows = 512, kInner = 1536;
  const kernels::Memory wide = rows_of_ones(backend, kRows, 2 * kInner),
                        out = backend.allocate(DType::F32, {kRows, kInner});
  const double seconds =
      best_seconds(options, [&] { backend.gated(out.view, wide.view, kernels::Activation::Silu); });
  return seconds / (3.0 * kRows * kInner);
}

}  // namespace

Machine calibrate(kernels::Backend& backend, const CalibrateOptions& options,
                  const std::function<void(const std::string&)>& progress) {
  Machine machine;
  machine.name = fmt::format("this machine ({}, {} threads)", backend.name(), options.threads);
  machine.blocks = Arithmetic::Int8;
  machine.memory = double(memory_room().bytes);
  progress("memory and multipliers");
  const Limits limits = measure_limits(options.threads);
  machine.read = limits.read;
  machine.multiply = limits.multiply;
  machine.read_share = machine.multiply_share = 1;
  machine.overhead = operation_overhead(backend, options);
  machine.elementwise = elementwise_seconds(backend, options);
  for (const DType type : options.types) {
    progress(fmt::format("GEMMs of {}", sluice::name(type)));
    measure_gemms(machine, backend, options, type);
  }
  progress("attention");
  machine.decode_attention = attention_rate(backend, options, 16, 1);
  machine.prefill_attention = attention_rate(backend, options, 1, 256);
  return machine;
}

}  // namespace sluice::lab
