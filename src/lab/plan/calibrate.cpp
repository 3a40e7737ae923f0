#include "lab/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/system/memory.h"
#include "lab/measure/cut_model.h"
#include "lab/measure/layer_probe.h"
#include "lab/plan/step_probe.h"

namespace sluice::lab {

namespace {

constexpr int64_t kWidths[] = {512, 2048};
// Multiplications of one measured call chain; more tell nothing new.
constexpr double kEnoughWork = 3e9;

}  // namespace

// Square matrices of one type, prepared as a model's are.
class MatrixSet {
 public:
  MatrixSet(kernels::Backend& backend, DType type, int64_t width, int64_t bytes) : width_(width) {
    const int64_t each = row_bytes(type, width) * width;
    const int64_t count = std::clamp<int64_t>(bytes / each, 2, 1024);
    for (int64_t i = 0; i < count; ++i)
      weights_.push_back(prepared_matrix(backend, {type, width, width}, stored_.emplace_back()));
  }
  double elements() const { return double(width_) * double(width_); }  // of one
  const std::vector<kernels::Weight>& weights() const { return weights_; }

 private:
  int64_t width_;
  std::deque<std::vector<std::byte>> stored_;
  std::vector<kernels::Weight> weights_;
};

// GEMMs of one type and width, with every number of rows. Goes through the matrices in turn.
class GemmProbe {
 public:
  GemmProbe(kernels::Backend& backend, const CalibrateOptions& options, DType type, int64_t width)
      : backend_(backend),
        options_(options),
        type_(type),
        width_(width),
        set_(backend, type, width, options.matrix_bytes),
        samples_(options.rows.size()) {
    const int most = *std::max_element(options.rows.begin(), options.rows.end());
    x_ = rows_of_halves(backend, most, width);
    out_ = backend.allocate(DType::F32, {most, width});
  }

  void sample(double overhead) {
    for (size_t i = 0; i < samples_.size(); ++i) samples_[i].push_back(seconds(options_.rows[i], overhead));
  }
  void append(std::vector<GemmRate>& rates) const {
    for (size_t i = 0; i < samples_.size(); ++i)
      rates.push_back({type_, static_cast<int>(width_), options_.rows[i], mean_of(samples_[i])});
  }

 private:
  // Per element.
  double seconds(int rows, double overhead) {
    const double enough = kEnoughWork / (set_.elements() * rows);
    const size_t count = std::clamp<size_t>(static_cast<size_t>(enough) + 1, 1, set_.weights().size());
    const auto head = [&](const kernels::Memory& memory) {
      return TensorView::contiguous(memory.view.data, DType::F32, {rows, width_});
    };
    const Stopwatch watch(options_.time);
    for (size_t i = 0; i < count; ++i)
      backend_.matmul(head(out_), head(x_), set_.weights()[next_++ % set_.weights().size()]);
    const double all = watch.seconds();
    return std::max(all - double(count) * overhead, all / 2) / (double(count) * set_.elements());
  }

  kernels::Backend& backend_;
  const CalibrateOptions& options_;
  DType type_;
  int64_t width_;
  MatrixSet set_;
  kernels::Memory x_, out_;
  size_t next_ = 0;
  std::vector<std::vector<double>> samples_;  // by rows
};

// Sequences of equal length, each with its own blocks, as a step has them.
struct AttentionStep {
  static constexpr int kKvHeads = 4, kDim = 64, kBlock = 16;

  AttentionStep(kernels::Backend& backend, int group, int sequences, int queries, int context)
      : AttentionStep(backend, {kKvHeads * group, kKvHeads, kDim, sequences, queries}, context) {}
  AttentionStep(kernels::Backend& backend, const AttentionRate& its_shape, int context)
      : shape(its_shape), rows(shape.sequences * shape.queries), width((context + kBlock - 1) / kBlock) {
    const int sequences = shape.sequences, queries = shape.queries, heads = shape.heads, dim = shape.dim;
    const int64_t blocks = int64_t{width} * sequences;
    k = backend.allocate_kv(DType::F16, {blocks, kBlock, shape.kv_heads, dim});
    v = backend.allocate_kv(DType::F16, {blocks, kBlock, shape.kv_heads, dim});
    // Pages that nobody wrote to would all be one page of zeros, which the caches hold.
    for (const kernels::Memory* memory : {&k, &v})
      std::memset(memory->view.data, 0x3c, static_cast<size_t>(memory->view.bytes()));
    q = rows_of_halves(backend, rows, int64_t{heads} * dim);
    out = backend.allocate(DType::F32, {rows, heads, dim});
    ids.resize(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    for (int s = 0; s <= sequences; ++s) begins.push_back(s * queries);
    for (int s = 0; s < sequences; ++s)
      for (int i = 0; i < queries; ++i) positions.push_back(context - queries + i);
    table = {ids, width};
    shape.seen = context - (queries - 1) / 2.0;
  }
  double operations() const { return 2.0 * rows * shape.seen * shape.heads * 2 * shape.dim; }
  double kv_numbers() const {
    return rows * shape.seen * shape.kv_heads * 2 * shape.dim;
  }  // with one query of a sequence
  double seconds(kernels::Backend& backend, TimeSource time) const {
    const kernels::RaggedBatch batch{begins, positions, {&table, 1}};
    const Stopwatch watch(time);
    backend.begin(batch);
    backend.attend(out.view, TensorView::contiguous(q.view.data, DType::F32, {rows, shape.heads, shape.dim}),
                   {.k = k.view, .v = v.view, .k_scales = {}, .v_scales = {}, .table = 0}, batch,
                   {.heads = shape.heads,
                    .kv_heads = shape.kv_heads,
                    .key_dim = shape.dim,
                    .value_dim = shape.dim,
                    .scale = 0.125F});
    return watch.seconds();
  }

  AttentionRate shape;
  int rows, width;
  kernels::Memory k, v, q, out;
  std::vector<int32_t> ids, begins, positions;
  kernels::RaggedBatch::BlockTable table;
};

// One query of many sequences whose KV no cache holds, with one query head and with several to a KV head; and prompts.
class AttentionProbe {
 public:
  AttentionProbe(kernels::Backend& backend, const CalibrateOptions& options)
      : backend_(backend),
        time_(options.time),
        alone_(backend, 1, sequences(options), 1, kContext),
        together_(backend, kGroup, sequences(options), 1, kContext),
        short_(backend, kGroup, 1, 2 * int(AttentionRates::kShortSeen), 2 * int(AttentionRates::kShortSeen)),
        long_(backend, kGroup, 1, kLongQueries, int(AttentionRates::kLongSeen) + kLongQueries / 2) {}

  void sample() {
    alone_samples_.push_back(alone_.seconds(backend_, time_) / alone_.kv_numbers());
    together_samples_.push_back(together_.seconds(backend_, time_) / together_.kv_numbers());
    short_samples_.push_back(short_.seconds(backend_, time_) / short_.operations());
    long_samples_.push_back(long_.seconds(backend_, time_) / long_.operations());
  }
  AttentionRates rates() const {
    const double alone = mean_of(alone_samples_), together = mean_of(together_samples_);
    AttentionRates out;
    out.row = std::clamp((together - alone) / (kGroup - 1), together / 100, together / kGroup);
    out.read = together - kGroup * out.row;
    out.tile_short = mean_of(short_samples_);
    out.tile_long = mean_of(long_samples_);
    return out;
  }

 private:
  static constexpr int kContext = 1024, kGroup = 4, kLongQueries = 128;

  // Whose KV takes as much as the matrices.
  static int sequences(const CalibrateOptions& options) {
    constexpr int64_t kEach = int64_t{kContext} * AttentionStep::kKvHeads * AttentionStep::kDim * 2 * 2;
    return static_cast<int>(std::clamp<int64_t>(options.matrix_bytes / kEach, 2, 1024));
  }

  kernels::Backend& backend_;
  TimeSource time_;
  AttentionStep alone_, together_, short_, long_;
  std::vector<double> alone_samples_, together_samples_, short_samples_, long_samples_;
};

// Attention with the heads of a model: decode of every number of sequences at every context, and pieces of prompts.
class HeadsProbe {
 public:
  HeadsProbe(kernels::Backend& backend, const CalibrateOptions& options)
      : backend_(backend), time_(options.time) {
    const auto add = [&](int sequences, int queries, int context) {
      AttentionRate shape = options.heads;
      shape.sequences = sequences;
      shape.queries = queries;
      calls_.push_back({std::make_unique<AttentionStep>(backend, shape, context), {}});
    };
    for (const int sequences : {1, 4, 16, 64})
      for (const int context : {128, 1024, 4096}) add(sequences, 1, context);
    add(4, 128, 128);
    for (const int context : {512, 1024, 2048, 4096}) add(1, 256, context);
  }
  void sample() {
    for (Call& call : calls_) call.samples.push_back(call.step->seconds(backend_, time_));
  }
  std::vector<AttentionRate> rates() const {
    std::vector<AttentionRate> out;
    for (const Call& call : calls_) {
      out.push_back(call.step->shape);
      out.back().seconds = mean_of(call.samples);
    }
    return out;
  }

 private:
  struct Call {
    std::unique_ptr<AttentionStep> step;
    std::vector<double> samples;
  };
  kernels::Backend& backend_;
  TimeSource time_;
  std::vector<Call> calls_;
};

namespace {

// An operation on one row takes hardly longer than its start and its end.
double operation_overhead(kernels::Backend& backend, TimeSource time) {
  constexpr int kCalls = 200;
  const kernels::Memory x = rows_of_halves(backend, 1, 64), out = backend.allocate(DType::F32, {1, 64});
  const Stopwatch watch(time);
  for (int i = 0; i < kCalls; ++i) backend.rms_norm(out.view, x.view, {}, 1e-5F);
  return watch.seconds() / kCalls;
}

double elementwise_seconds(kernels::Backend& backend, TimeSource time) {
  constexpr int kRows = 512, kInner = 1536;
  const kernels::Memory wide = rows_of_halves(backend, kRows, 2 * kInner),
                        out = rows_of_halves(backend, kRows, kInner);
  const Stopwatch watch(time);
  backend.gated(out.view, wide.view, kernels::Activation::Silu);
  return watch.seconds() / (3.0 * kRows * kInner);
}

// What GEMMs reached, the machine can do: a limit that was measured beside the work of others may be too low.
void raise_limits(Machine& machine) {
  for (const GemmRate& rate : machine.gemms) {
    const double size = double(info(rate.type).block_bytes) / info(rate.type).block_elements;
    const Arithmetic arithmetic = is_block(rate.type) ? machine.blocks : arithmetic_of(rate.type);
    double& multiply = machine.multiply[static_cast<size_t>(arithmetic)];
    machine.read = std::max(machine.read, size / rate.seconds_per_element);
    multiply = std::max(multiply, 2 * rate.rows / rate.seconds_per_element);
  }
}

}  // namespace

struct Calibration::Probes {
  Probes(kernels::Backend& its_backend, CalibrateOptions its_options)
      : backend(its_backend), options(std::move(its_options)) {
    if (options.model != nullptr) {
      Result<std::unique_ptr<LayerProbe>> made =
          LayerProbe::make(*options.model, *options.sheet, {.time = options.time, .turns = options.turns});
      if (made) {
        layers = std::move(*made);
        return;
      }
      log_warning("steps of the model's layers cannot be measured: {}", made.error().message);
    }
    for (const DType type : options.types)
      for (const int64_t width : kWidths)
        gemms.push_back(std::make_unique<GemmProbe>(backend, options, type, width));
    if (!options.step.empty()) step.emplace(backend, options.step, options.time);
    if (options.heads.heads > 0) heads.emplace(backend, options);
    attention.emplace(backend, options);
  }

  kernels::Backend& backend;
  const CalibrateOptions options;
  std::unique_ptr<LayerProbe> layers;  // in the place of all others
  std::vector<std::unique_ptr<GemmProbe>> gemms;
  std::optional<StepProbe> step;
  std::optional<HeadsProbe> heads;
  std::optional<AttentionProbe> attention;
  std::vector<double> overhead, elementwise;
};

Calibration::Calibration(kernels::Backend& backend, CalibrateOptions options)
    : probes_(std::make_unique<Probes>(backend, std::move(options))) {}
Calibration::~Calibration() = default;

void Calibration::sample() {
  Probes& probes = *probes_;
  if (probes.layers) return probes.layers->sample();
  probes.overhead.push_back(operation_overhead(probes.backend, probes.options.time));
  probes.elementwise.push_back(elementwise_seconds(probes.backend, probes.options.time));
  for (const auto& gemm : probes.gemms) gemm->sample(probes.overhead.back());
  if (probes.step) probes.step->sample(probes.overhead.back());
  probes.attention->sample();
  if (probes.heads) probes.heads->sample();
}

void Calibration::apply(Machine& machine) const {
  const Probes& probes = *probes_;
  if (probes.layers) {
    machine.steps = probes.layers->rates();
    return;
  }
  const std::vector<DType>& types = probes.options.types;
  std::erase_if(machine.gemms, [&](const GemmRate& rate) {
    const bool again = std::find(types.begin(), types.end(), rate.type) != types.end();
    return rate.inputs == 0 ? again : probes.step.has_value();
  });
  for (const auto& gemm : probes.gemms) gemm->append(machine.gemms);
  if (probes.step) probes.step->append(machine.gemms);
  machine.attention = probes.attention->rates();
  if (probes.heads) machine.attentions = probes.heads->rates();
  machine.overhead = mean_of(probes.overhead);
  machine.elementwise = mean_of(probes.elementwise);
  raise_limits(machine);
}

CalibrationWindow::CalibrationWindow(Calibration& calibration, Machine machine, Predict predict)
    : calibration_(calibration), machine_(std::move(machine)), predict_(std::move(predict)) {
  if (LayerProbe* layers = calibration_.probes_->layers.get()) {
    points_ = layers->points_behind([&](const StepRates& rates) {
      machine_.steps = rates;
      return predict_(machine_);
    });
    since_ = layers->counts();
  }
  sample();
}

void CalibrationWindow::sample() {
  LayerProbe* layers = calibration_.probes_->layers.get();
  if (layers == nullptr) return calibration_.sample();
  layers->sample(points_);
}

double CalibrationWindow::predicted() const {
  Machine machine = machine_;
  const LayerProbe* layers = calibration_.probes_->layers.get();
  if (layers != nullptr) {
    machine.steps = layers->rates(since_);
  } else {
    calibration_.apply(machine);
  }
  return predict_(machine);
}

void calibrate_for(Machine& machine, kernels::Backend& backend, const CalibrateOptions& options) {
  Calibration calibration(backend, options);
  for (int i = 0; i < options.repeat; ++i) calibration.sample();
  calibration.apply(machine);
}

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
  for (const DType type : options.types) {  // one by one: their matrices need not fit into memory together
    progress(fmt::format("GEMMs of {}, attention", sluice::name(type)));
    CalibrateOptions one = options;
    one.types = {type};
    calibrate_for(machine, backend, one);
  }
  return machine;
}

CalibrateOptions options_for(const ModelSheet& sheet) {
  CalibrateOptions options;
  options.types.clear();
  const bool shaped = std::all_of(sheet.matrices.begin(), sheet.matrices.end(),
                                  [](const MatrixGroup& group) { return !group.shapes.empty(); });
  if (!shaped) options.types = {sheet.weights};
  options.step = step_gemms(sheet);
  const auto most =
      std::max_element(sheet.attention.begin(), sheet.attention.end(),
                       [](const AttentionGroup& a, const AttentionGroup& b) { return a.layers < b.layers; });
  if (most != sheet.attention.end() && most->key_dim == most->value_dim && most->heads % most->kv_heads == 0)
    options.heads = {.heads = most->heads, .kv_heads = most->kv_heads, .dim = most->key_dim};
  return options;
}

CalibrateOptions options_for(const ModelSheet& sheet, const models::Model& model) {
  CalibrateOptions options = options_for(sheet);
  if (!can_be_cut(model.spec())) return options;
  options.model = &model;
  options.sheet = &sheet;
  return options;
}

}  // namespace sluice::lab
