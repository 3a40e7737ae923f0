#include "lab/quantize/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lab/context_reader.h"

namespace sluice::lab {

void Importance::saw(const kernels::Weight& weight, TensorView x) {
  if (weight.stored.empty()) return;
  std::vector<double> squares(static_cast<size_t>(x.dim(1)), 0.0);
  for (int64_t row = 0; row < x.dim(0); ++row) {
    const float* values = x.at<float>(row);
    for (size_t i = 0; i < squares.size(); ++i)
      squares[i] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (const kernels::StoredTensor& stored : weight.stored) {
    Sums& sums = sums_[stored.name][stored.slice];
    sums.squares.resize(squares.size(), 0.0);
    for (size_t i = 0; i < squares.size(); ++i) sums.squares[i] += squares[i];
    sums.tokens += x.dim(0);
  }
}

std::vector<float> Importance::of(const std::string& tensor, int slice) const {
  constexpr double kLeast = 1e-4;  // of the mean
  const auto found = sums_.find(tensor);
  if (found == sums_.end()) return {};
  const auto sums = found->second.find(slice);
  if (sums == found->second.end() || sums->second.tokens == 0) return {};
  const std::vector<double>& squares = sums->second.squares;
  const double mean =
      std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(squares.size());
  if (!(mean > 0.0)) return {};
  // As shares of the mean: errors of one matrix are weighed against each other alone.
  std::vector<float> out;
  out.reserve(squares.size());
  for (const double square : squares) out.push_back(static_cast<float>(square / mean + kLeast));
  return out;
}

Result<Importance> measure_importance(const models::Model& model, std::span<const Token> text,
                                      const PerplexityOptions& options,
                                      const std::function<void(int, int)>& done) {
  auto* gemms = dynamic_cast<kernels::ObservableGemms*>(model.backend.get());
  if (gemms == nullptr)
    return Error{ErrorCode::Unsupported,
                 fmt::format("GEMMs of the device '{}' cannot be watched", model.backend->name())};
  const Result<int> contexts = contexts_of(model, text.size(), options);
  if (!contexts) return contexts.error();
  Result<ContextReader> reader = ContextReader::make(model, options);
  if (!reader) return reader.error();
  Importance out;
  gemms->set_observer(&out);
  for (int i = 0; i < *contexts; ++i) {
    const std::vector<Token> context = context_at(text, i, options);
    reader->run(context);
    reader->for_rows(context, [](std::span<const float>, Token) {});  // the output matrix
    done(i + 1, *contexts);
  }
  gemms->set_observer(nullptr);
  return out;
}

}  // namespace sluice::lab
