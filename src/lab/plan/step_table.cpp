#include "lab/plan/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace sluice::lab {

namespace {

constexpr std::pair<std::string_view, int StepRate::*> kStepCounts[] = {
    {"layers", &StepRate::layers},
    {"sequences", &StepRate::sequences},
    {"queries", &StepRate::queries},
    {"depth", &StepRate::depth},
};

// Positions that the tokens of the base see, in the mean.
constexpr double kBaseSeen = (StepRates::kBasePrompt + 1) / 2.0;

double mean_seen(const StepRate& step) {
  return step.depth + (step.queries + 1) / 2.0;
}

bool is_base(const StepRate& step) {
  return step.queries == 1 ? step.depth == StepRates::kBaseDepth
                           : step.depth == 0 && step.queries <= StepRates::kBasePrompt;
}

// Where logits were computed, the same step of one layer alone says what they cost.
std::optional<double> one_layer(const StepRates& rates, const StepRate& step) {
  if (step.layers < 2) return std::nullopt;
  if (!step.logits) return step.seconds / step.layers;
  for (const StepRate& other : rates.steps)
    if (other.layers == 1 && other.logits && other.sequences == step.sequences &&
        other.queries == step.queries && other.depth == step.depth)
      return std::max(0.0, step.seconds - other.seconds) / (step.layers - 1);
  return std::nullopt;
}

Result<DType> type_named(const json::object& object, std::string_view key, std::string_view what) {
  Result<std::optional<std::string>> name = get_string(object, key);
  if (!name) return name.error();
  for (const DTypeInfo& type : kDTypes)
    if (*name && type.name == **name) return type.type;
  return Error{ErrorCode::Corrupt, fmt::format("{}: unknown '{}' of the steps", what, key)};
}

Result<StepRate> read_step(const json::value& value, std::string_view what) {
  const Error wrong{ErrorCode::Corrupt,
                    fmt::format("{}: a step is not as 'plan --calibrate' writes it", what)};
  if (!value.is_object()) return wrong;
  const json::object& object = value.as_object();
  StepRate step;
  for (const auto& [key, member] : kStepCounts) {
    Result<std::optional<double>> number = get_number(object, key);
    if (!number) return number.error();
    const double count = number->value_or(-1);
    if (!(count >= (member == &StepRate::depth ? 0 : 1) && count <= 1 << 24)) return wrong;
    step.*member = static_cast<int>(count);
  }
  Result<std::optional<double>> seconds = get_number(object, "seconds");
  if (!seconds) return seconds.error();
  const json::value* logits = object.if_contains("logits");
  if (!(seconds->value_or(0) > 0) || logits == nullptr || !logits->is_bool()) return wrong;
  step.seconds = **seconds;
  step.logits = logits->as_bool();
  return step;
}

}  // namespace

double on_curve(const Curve& curve, double x, bool extends) {
  const auto above = curve.lower_bound(x);
  if (curve.size() == 1 || (!extends && (above == curve.begin() || above == curve.end())))
    return (above == curve.end() ? std::prev(above) : above)->second;
  auto high = above == curve.begin() ? std::next(above) : above;
  if (high == curve.end()) --high;
  const auto low = std::prev(high);
  const double slope = (high->second - low->second) / (high->first - low->first);
  const double there = low->second + slope * (x - low->first);
  return x < curve.begin()->first ? std::max(there, curve.begin()->second / 2) : std::max(0.0, there);
}

StepTable::StepTable(const StepRates& rates) {
  for (const StepRate& step : rates.steps)
    if (const std::optional<double> layer = one_layer(rates, step); layer && is_base(step))
      layers_[step.tokens()] = *layer;
  if (layers_.empty()) return;
  for (const StepRate& step : rates.steps) {
    if (step.layers == 1 && step.logits && step.queries == 1 && is_base(step))
      ends_[step.sequences] = std::max(0.0, step.seconds - layer_seconds(step.sequences));
    const std::optional<double> layer = one_layer(rates, step);
    if (!layer || is_base(step)) continue;
    const double more = std::max(0.0, *layer - layer_seconds(step.tokens()));
    if (step.queries == 1) {
      Curve& curve = decode_attention_[std::log2(step.sequences)];
      curve[StepRates::kBaseDepth + 1] = 0;
      curve[step.depth + 1] = more / step.sequences;
    } else {
      prompt_attention_[mean_seen(step)] = more / (step.tokens() * (mean_seen(step) - kBaseSeen));
    }
  }
}

double StepTable::end_seconds(double logit_rows) const {
  return logit_rows > 0 ? on_curve(ends_, logit_rows, true) : 0;
}

double StepTable::attention_seconds(double queries, double seen, int sequences) const {
  if (queries > 1) {
    if (prompt_attention_.empty()) return 0;
    return queries * std::max(0.0, seen - kBaseSeen) * on_curve(prompt_attention_, seen, false);
  }
  Curve at_seen;
  for (const auto& [log_sequences, curve] : decode_attention_)
    at_seen[log_sequences] = on_curve(curve, seen, true);
  return at_seen.empty() ? 0 : on_curve(at_seen, std::log2(sequences), false);
}

std::vector<size_t> steps_behind(const StepRates& rates,
                                 const std::function<double(const StepRates&)>& predict) {
  constexpr double kChange = 0.02, kNotable = 0.01;  // of a step's time; of as much change in the prediction
  const double whole = predict(rates);
  std::vector<size_t> out;
  StepRates changed = rates;
  for (size_t i = 0; i < rates.steps.size(); ++i) {
    changed.steps[i].seconds = rates.steps[i].seconds * (1 + kChange);
    if (std::abs(predict(changed) - whole) > kNotable * kChange * whole) out.push_back(i);
    changed.steps[i].seconds = rates.steps[i].seconds;
  }
  return out;
}

json::object to_json(const StepRates& rates) {
  json::array steps;
  for (const StepRate& step : rates.steps) {
    json::object one;
    for (const auto& [key, member] : kStepCounts) one[key] = step.*member;
    one["logits"] = step.logits;
    one["seconds"] = step.seconds;
    steps.push_back(std::move(one));
  }
  return {{"type", sluice::name(rates.type)},
          {"kv_type", sluice::name(rates.kv_type)},
          {"elements", rates.elements},
          {"steps", std::move(steps)}};
}

Result<StepRates> step_rates_from_json(const json::value& value, std::string_view what) {
  if (!value.is_object()) return Error{ErrorCode::Corrupt, fmt::format("{}: 'steps' is no object", what)};
  const json::object& object = value.as_object();
  StepRates rates;
  Result<DType> type = type_named(object, "type", what);
  if (!type) return type.error();
  Result<DType> kv_type = type_named(object, "kv_type", what);
  if (!kv_type) return kv_type.error();
  Result<std::optional<double>> elements = get_number(object, "elements");
  if (!elements) return elements.error();
  rates.type = *type;
  rates.kv_type = *kv_type;
  rates.elements = elements->value_or(0);
  const json::value* steps = object.if_contains("steps");
  if (steps == nullptr || !steps->is_array())
    return Error{ErrorCode::Corrupt, fmt::format("{}: 'steps' has no list", what)};
  for (const json::value& entry : steps->as_array()) {
    Result<StepRate> step = read_step(entry, what);
    if (!step) return step.error();
    rates.steps.push_back(*step);
  }
  return rates;
}

}  // namespace sluice::lab
