#include "lab/plan/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::lab {

namespace {

// Of an exchange between devices, beside what it moves.
constexpr double kExchangeLatency = 10e-6;
// Query rows of a KV head from which on attention is taken to run at the rate of many.
constexpr double kManyRows = 24;

void settle_by_limits(PlannedOperation& operation, const Machine& machine, double rate) {
  const double reading = operation.bytes / (machine.read * machine.read_share);
  const double multiplying = operation.operations / (rate * machine.multiply_share);
  operation.seconds = std::max(reading, multiplying);
}

void settle_bound(PlannedOperation& operation, const Machine& machine, double rate) {
  operation.bound =
      operation.bytes / machine.read >= operation.operations / rate ? Bound::Memory : Bound::Compute;
}

}  // namespace

CostModel::CostModel(ModelSheet sheet, Machine machine, DeviceCut cut)
    : sheet_(std::move(sheet)), machine_(std::move(machine)), cut_(cut), ways_(cut.tensor) {
  const StepRates& rates = machine_.steps;
  if (cut.tensor == 1 && rates.type == sheet_.weights && rates.kv_type == sheet_.kv_type &&
      rates.elements == sheet_.layer_elements())
    steps_ = StepTable(rates);
}

std::string CostModel::machine_text() const {
  return cut_.devices() == 1 ? machine_.name : fmt::format("{} x {}", cut_.devices(), machine_.name);
}

double CostModel::layers_seconds(double tokens) const {
  return double(sheet_.spec.layers.size()) * steps_.layer_seconds(tokens);
}

PlannedOperation CostModel::gemm(const MatrixGroup& group, double tokens, bool is_output) const {
  const DType type = is_output ? sheet_.output_type : sheet_.weights;
  const double size = is_output ? sheet_.bytes_per_output : sheet_.bytes_per_weight;
  const double use = group.used / group.experts;
  // With tokens that choose evenly, an expert is left out by all of them with (1 - use)^tokens.
  const double touched = use < 1 ? 1 - std::pow(1 - use, tokens) : 1;
  PlannedOperation out{.name = group.name};
  const double elements = group.elements / ways_;
  out.bytes = elements * touched * size;
  out.operations = 2 * elements * use * tokens;
  const double rate = machine_.multiply_rate(type);
  const double rows = touched > 0 ? tokens * use / touched : tokens;  // of each matrix that is used
  const double measured = measured_gemm(group, type, rows);
  if (measured > 0) {
    out.seconds = elements * touched * measured;
  } else {
    settle_by_limits(out, machine_, rate);
  }
  settle_bound(out, machine_, rate);
  out.seconds += group.calls * machine_.overhead;
  if (is_output)
    out.seconds += tokens * sheet_.spec.vocab * machine_.elementwise;  // logits, brought to the host
  return out;
}

// Per element; 0: by the limits. Matrices whose own shape was measured count with that, others as square ones.
double CostModel::measured_gemm(const MatrixGroup& group, DType type, double rows) const {
  double seconds = 0, elements = 0;
  for (const MatrixShape& shape : group.shapes) {
    const double each = shape_seconds_per_element(machine_, {type, shape.outputs, shape.inputs}, rows);
    if (each <= 0 || ways_ > 1) break;
    seconds += shape.calls * shape.elements() * each;
    elements += shape.calls * shape.elements();
  }
  if (elements > 0 && elements == group.elements) return seconds / elements;
  const double width = std::sqrt(group.elements / ways_ / std::max(1, group.calls) / group.experts);
  return gemm_seconds_per_element(machine_, type, rows, width);
}

PlannedOperation CostModel::attend(const AttentionGroup& group, const StepShape& shape) const {
  const double queries = shape.tokens, depth = shape.depth;
  PlannedOperation out{.name = group.is_indexer() ? "indexer scores"
                               : group.chosen > 0 ? "attention (chosen)"
                               : group.window > 0 ? "attention (window)"
                                                  : "attention"};
  const double mean = group.seen(depth + (queries + 1) / 2);
  const double ways = group.is_indexer() ? 1 : ways_;  // every rank chooses by itself
  out.operations = 2 * queries * group.layers * group.heads * (group.key_dim + group.value_dim) * mean / ways;
  // Each query chooses for itself.
  const double read =
      std::min(group.kept(depth + queries), group.seen(depth + queries) * (group.chosen > 0 ? queries : 1));
  out.bytes = group.kv_width * read * info(sheet_.kv_type).block_bytes / group.kv_share(cut_.tensor);
  const double rate = machine_.multiply[static_cast<size_t>(Arithmetic::Bf16)];
  if (!steps_.empty()) {
    out.seconds = group.layers * steps_.attention_seconds(queries, mean, shape.sequences);
  } else if (machine_.attention.measured()) {
    out.seconds = measured_attention(group, shape, mean) / ways_;
  } else {
    settle_by_limits(out, machine_, rate);
  }
  settle_bound(out, machine_, rate);
  return out;
}

double CostModel::measured_attention(const AttentionGroup& group, const StepShape& shape, double seen) const {
  const double queries = shape.tokens;
  const AttentionRates& rates = machine_.attention;
  const double rows = queries * group.heads / std::max(1, group.kv_heads);
  const double dims = double(group.layers) * (group.key_dim + group.value_dim);
  if (group.key_dim == group.value_dim && (rows >= kManyRows || shape.tokens == 1)) {
    const double call = attention_call_seconds(
        machine_, {group.heads, group.kv_heads, group.key_dim, shape.sequences, shape.tokens, seen, 0});
    if (call > 0) return group.layers * call;
  }
  if (rows < kManyRows) return group.kv_heads * dims * seen * (rates.read + rates.row * rows);
  const double share = std::clamp(
      (seen - AttentionRates::kShortSeen) / (AttentionRates::kLongSeen - AttentionRates::kShortSeen), 0.0,
      1.0);
  return 2 * queries * group.heads * dims * seen * std::lerp(rates.tile_short, rates.tile_long, share);
}

PlannedOperation CostModel::elementwise(double tokens) const {
  PlannedOperation out{.name = "norms, gates, positions"};
  const double numbers = sheet_.elementwise * tokens;
  out.bytes = 2 * numbers;
  out.seconds = machine_.elementwise > 0 ? numbers * machine_.elementwise
                                         : out.bytes / (machine_.read * machine_.read_share);
  out.seconds += sheet_.operations * machine_.overhead;
  if (steps_.empty()) return out;
  double multiplied = 0;  // measured layers have these in them
  for (const MatrixGroup& group : sheet_.matrices) multiplied += gemm(group, tokens, false).seconds;
  out.seconds = std::max(0.0, layers_seconds(tokens) - multiplied);
  return out;
}

// Two sums over all devices in each layer: each device sends and receives 2 (n - 1) / n of the activations. Between stages
// the stream travels once.
PlannedOperation CostModel::exchange(double tokens) const {
  PlannedOperation out{.name = "exchange between devices"};
  const double sums = 2.0 * double(sheet_.spec.layers.size());
  out.bytes = sums * tokens * sheet_.spec.dim * 2 * 2 * (ways_ - 1) / ways_;
  const double link = machine_.peer_link > 0 ? machine_.peer_link : machine_.read / 4;
  out.seconds = ways_ > 1 ? out.bytes / link + sums * kExchangeLatency : 0;
  const double stream = (cut_.stages - 1) * tokens * sheet_.spec.dim * 2;
  out.bytes += stream;
  out.seconds += stream / link + (cut_.stages - 1) * kExchangeLatency;
  return out;
}

std::vector<PlannedOperation> CostModel::operations(const StepShape& shape) const {
  const double tokens = double(shape.sequences) * shape.tokens;
  std::vector<PlannedOperation> out;
  for (const MatrixGroup& group : sheet_.matrices) out.push_back(gemm(group, tokens, false));
  out.push_back(gemm(sheet_.output, shape.sequences, true));
  for (const AttentionGroup& group : sheet_.attention) {
    PlannedOperation one = attend(group, shape);
    one.bytes *= shape.sequences;
    one.operations *= shape.sequences;
    one.seconds *= shape.sequences;
    out.push_back(std::move(one));
  }
  out.push_back(elementwise(tokens));
  if (cut_.devices() > 1) out.push_back(exchange(tokens));
  return out;
}

double CostModel::token_seconds(double tokens, double logit_rows) const {
  if (!steps_.empty()) return layers_seconds(tokens) + steps_.end_seconds(logit_rows);
  double sum = elementwise(tokens).seconds;
  for (const MatrixGroup& group : sheet_.matrices) sum += gemm(group, tokens, false).seconds;
  if (logit_rows > 0) sum += gemm(sheet_.output, logit_rows, true).seconds;
  return cut_.devices() > 1 ? sum + exchange(tokens).seconds : sum;
}

double CostModel::attention_seconds(double queries, double depth, int sequences) const {
  double sum = 0;
  for (const AttentionGroup& group : sheet_.attention)
    sum += attend(group, {sequences, static_cast<int>(queries), depth}).seconds;
  return sum;
}

double CostModel::seconds(const StepShape& shape) const {
  return token_seconds(double(shape.sequences) * shape.tokens, shape.sequences) +
         shape.sequences * attention_seconds(shape.tokens, shape.depth, shape.sequences);
}

double CostModel::prompt_seconds(double tokens, double cached, int step_tokens) const {
  return prompts_seconds(1, tokens, cached, step_tokens);
}

double CostModel::prompts_seconds(int sequences, double tokens, double cached, int step_tokens) const {
  double sum = 0, left = step_tokens, ends = 0;  // `left` and `ends` of the step that is being filled
  const auto end_step = [&] {
    if (left < step_tokens) sum += token_seconds(step_tokens - left, ends);
    left = step_tokens;
    ends = 0;
  };
  for (int sequence = 0; sequence < sequences; ++sequence) {
    for (double begin = 0; begin < tokens;) {
      const double count = std::min(left, tokens - begin);
      sum += attention_seconds(count, cached + begin);
      begin += count;
      left -= count;
      if (begin >= tokens) ++ends;
      if (left <= 0) end_step();
    }
  }
  end_step();
  return sum;
}

}  // namespace sluice::lab
