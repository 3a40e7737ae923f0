#include "lab/measure/layer_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/measure/cut_model.h"
#include "lab/plan/step_probe.h"

namespace sluice::lab {

namespace {

// Tokens of decode steps and of steps of prompts. A device's decode steps are filled up to such numbers anyway.
constexpr int kHostRows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr int kDeviceRows[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96};
constexpr int kHostPrompts[] = {96, 128, 256, 512};
constexpr int kDevicePrompts[] = {128, 256, 512, 1024, 2048, 4096, 8192};
constexpr int kSequences[] = {1, 4, 16, 64};
constexpr int kDepths[] = {128, 512, 2048, 4096};

struct Piece {
  int queries, depth;
};
// Whole steps of a long prompt, as a host cuts it.
constexpr Piece kHostPieces[] = {{512, 0}, {512, 512}, {512, 1536}, {512, 3584}};
constexpr Piece kDevicePieces[] = {{512, 0}, {2048, 0}, {4096, 0}, {1024, 3072}};

// More than caches hold: a model's weights and KV of all layers come from memory.
constexpr double kWeightBytes = double(256 << 20), kKvBytes = double(160 << 20);
constexpr double kMostWork = 4e9;  // multiplications of a step on a host; more tell nothing new
constexpr int kDeviceLayers = 8;
constexpr double kDeviceSeconds = 0.02;  // of a sample
constexpr int kWarmRuns = 3;             // a device records a step when it comes again

}  // namespace

LayerProbe::LayerProbe(const models::Model& model, const ModelSheet& sheet, const LayerProbeOptions& options)
    : model_(model),
      options_(options),
      device_(model.backend->async_device() != nullptr),
      layers_(static_cast<int>(model.spec().layers.size())),
      layer_elements_(sheet.layer_elements() / layers_),
      layer_bytes_(layer_elements_ * sheet.bytes_per_weight),
      kv_width_(double(models::kv_bytes_per_token(model.spec(), sheet.kv_type)) / layers_) {
  rates_ = {.type = sheet.weights, .kv_type = sheet.kv_type, .elements = sheet.layer_elements(), .steps = {}};
}

Result<std::unique_ptr<LayerProbe>> LayerProbe::make(const models::Model& model, const ModelSheet& sheet,
                                                     const LayerProbeOptions& options) {
  auto probe = std::unique_ptr<LayerProbe>(new LayerProbe(model, sheet, options));
  if (Status status = probe->add_base(); !status) return status.error();
  if (Status status = probe->add_attention(); !status) return status.error();
  return probe;
}

// As many as fill the caches with weights or KV, and no more than the work of many tokens asks for.
int LayerProbe::layers_for(int tokens, double kv_bytes) const {
  if (device_) return std::min(layers_, kDeviceLayers);
  double wanted =
      kv_bytes > 0 ? std::min(kKvBytes / kv_bytes, kWeightBytes / layer_bytes_) : kWeightBytes / layer_bytes_;
  if (tokens > *std::rbegin(kHostRows)) wanted = std::min(wanted, kMostWork / (tokens * layer_elements_));
  return static_cast<int>(std::clamp(std::ceil(wanted), 2.0, double(layers_)));
}

Result<std::unique_ptr<Track>> LayerProbe::make_track(int layers, int sequences, int positions) {
  auto& cut = cuts_[layers];
  if (cut == nullptr) cut = std::make_unique<models::Model>(cut_model(model_, layers));
  SpeedOptions speed;
  speed.kv_type = rates_.kv_type;
  speed.block_size = device_ ? 64 : 16;
  speed.step_tokens = device_ ? 1024 : 512;
  return Track::make(*cut, speed, sequences, positions);
}

Status LayerProbe::add(StepRate step, bool shared) {
  const int positions = step.depth + step.queries;
  if (positions > model_.spec().context || step.tokens() > options_.step_tokens) return {};
  std::unique_ptr<Track>& kept = shared ? shared_[step.layers] : own_.emplace_back();
  if (kept == nullptr) {
    const int most = device_ ? *std::rbegin(kDeviceRows) : *std::rbegin(kHostRows);
    Result<std::unique_ptr<Track>> made = shared ? make_track(step.layers, most, StepRates::kBasePrompt)
                                                 : make_track(step.layers, step.sequences, positions);
    if (!made) return made.error();
    kept = std::move(*made);
    if (!shared) kept->fill_alike(step.depth);
  }
  points_.push_back({step, kept.get()});
  return {};
}

Status LayerProbe::add_pair(StepRate step, bool shared) {
  step.logits = device_;
  if (Status status = add(step, shared); !status || !device_) return status;
  step.layers = 1;
  return add(step, shared);
}

Status LayerProbe::add_base() {
  const auto rows = device_ ? std::span<const int>(kDeviceRows) : std::span<const int>(kHostRows);
  for (const int count : rows) {
    StepRate step{layers_for(count, 0), count, 1, StepRates::kBaseDepth};
    if (Status status = add_pair(step, true); !status) return status;
    step.layers = 1;
    if (!device_)
      if (Status status = add(step, true); !status) return status;
  }
  const auto prompts = device_ ? std::span<const int>(kDevicePrompts) : std::span<const int>(kHostPrompts);
  for (const int tokens : prompts) {
    if (tokens > options_.step_tokens) break;
    const int queries = std::min(tokens, StepRates::kBasePrompt);
    if (Status status = add_pair({layers_for(tokens, 0), tokens / queries, queries, 0}, true); !status)
      return status;
  }
  return {};
}

Status LayerProbe::add_attention() {
  for (const int sequences : kSequences) {
    for (const int depth : kDepths) {
      const StepRate step{layers_for(sequences, sequences * depth * kv_width_), sequences, 1, depth};
      if (Status status = add_pair(step, false); !status) return status;
    }
  }
  for (const Piece& piece :
       device_ ? std::span<const Piece>(kDevicePieces) : std::span<const Piece>(kHostPieces))
    if (Status status = add_pair({layers_for(piece.queries, 0), 1, piece.queries, piece.depth}, false);
        !status)
      return status;
  return {};
}

// A device has the next step to do before it has done one, as it has when it serves.
void LayerProbe::run_steps(const Point& point, int count) {
  const StepRate& step = point.step;
  for (int i = 0; i < count; ++i)
    point.track->submit_step(step.sequences, step.queries, step.depth, step.logits);
  point.track->wait();
}

void LayerProbe::run(Point& point) {
  // Steps follow others of their kind when a model runs: of what a first one costs more, few layers would get all.
  run_steps(point, device_ ? kWarmRuns : 1);
  if (point.runs == 0) {
    const Stopwatch watch(options_.time);
    run_steps(point, 1);
    point.runs = device_ ? std::clamp(static_cast<int>(kDeviceSeconds / watch.seconds()), 2, 50) : 1;
  }
  const Stopwatch watch(options_.time);
  run_steps(point, point.runs);
  point.samples.push_back(watch.seconds() / point.runs);
}

void LayerProbe::sample() {
  const size_t count =
      (points_.size() + static_cast<size_t>(options_.turns) - 1) / static_cast<size_t>(options_.turns);
  for (size_t i = 0; i < count; ++i) run(points_[next_++ % points_.size()]);
}

void LayerProbe::sample(std::span<const size_t> points) {
  for (const size_t point : points) run(points_[point]);
}

std::vector<size_t> LayerProbe::points_behind(const std::function<double(const StepRates&)>& predict) {
  for (Point& point : points_)
    if (point.samples.empty()) run(point);
  return steps_behind(rates(), predict);
}

std::vector<size_t> LayerProbe::counts() const {
  std::vector<size_t> out;
  for (const Point& point : points_) out.push_back(point.samples.size());
  return out;
}

StepRates LayerProbe::rates(std::span<const size_t> since) const {
  StepRates out = rates_;
  for (size_t i = 0; i < points_.size(); ++i) {
    std::span<const double> samples = points_[i].samples;
    if (samples.empty()) continue;
    if (!since.empty() && since[i] < samples.size()) samples = samples.subspan(since[i]);
    out.steps.push_back(points_[i].step);
    out.steps.back().seconds = mean_of(samples);
  }
  return out;
}

}  // namespace sluice::lab
