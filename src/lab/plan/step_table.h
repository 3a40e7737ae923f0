// What a layer of a model costs on a machine, from steps that were measured with some of its layers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace sluice::lab {

// A step of the first `layers` of a model, measured: `queries` tokens of each sequence behind `depth` positions.
struct StepRate {
  int layers = 1, sequences = 1, queries = 1, depth = 0;
  bool logits = true;  // of the last token of each sequence; false: none were computed
  double seconds = 0;

  int tokens() const { return sequences * queries; }
};

// Of one model, known by the type and the number of its weights.
struct StepRates {
  DType type = DType::BF16, kv_type = DType::F16;
  double elements = 0;  // of the matrices of all layers
  std::vector<StepRate> steps;

  // Base steps: decode at a context of kBaseDepth, and prefill of prompts of at most kBasePrompt tokens. Any other step is a
  // base step of as many tokens plus what its attention costs more.
  static constexpr int kBaseDepth = 16, kBasePrompt = 128;

  bool empty() const { return steps.empty(); }
};

// Which of the steps a prediction rests on: those of which a change in time changes it.
std::vector<size_t> steps_behind(const StepRates& rates,
                                 const std::function<double(const StepRates&)>& predict);

json::object to_json(const StepRates& rates);
Result<StepRates> step_rates_from_json(const json::value& value, std::string_view what);

// Points of a function, of which all are 0 or above.
using Curve = std::map<double, double>;
// Between the points around x; beyond the last in proportion to its slope, below the first by no less than half of it.
// `extends` false: beyond them as at the last of them.
double on_curve(const Curve& curve, double x, bool extends);

class StepTable {
 public:
  StepTable() = default;
  explicit StepTable(const StepRates& rates);

  bool empty() const { return layers_.empty() || ends_.empty(); }
  // Of one layer for so many tokens, with the attention of StepRates' base.
  double layer_seconds(double tokens) const { return on_curve(layers_, tokens, true); }
  // Of embedding, output matrix and sampling.
  double end_seconds(double logit_rows) const;
  // What attention of one layer costs more, for one of so many sequences alike whose tokens see so many positions in the
  // mean.
  double attention_seconds(double queries, double seen, int sequences) const;

 private:
  Curve layers_;  // by tokens
  Curve ends_;    // by rows of logits
  std::map<double, Curve>
      decode_attention_;    // by the logarithm of sequences, then by positions; of one sequence
  Curve prompt_attention_;  // by positions: of a token and a position
};

}  // namespace sluice::lab
