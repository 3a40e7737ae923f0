#include "lab/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "lab/context_reader.h"

namespace sluice::lab {

namespace {

// log of the sum of exp(logits)
double log_total(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(total);
}

void add_row(Comparison& out, std::span<const float> first, std::span<const float> second, Token next) {
  const double first_total = log_total(first), second_total = log_total(second);
  double divergence = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    const double p = static_cast<double>(first[i]) - first_total,
                 q = static_cast<double>(second[i]) - second_total;
    divergence += std::exp(p) * (p - q);
  }
  divergence = std::max(0.0, divergence);
  out.divergence.add(divergence);
  out.largest_divergence = std::max(out.largest_divergence, divergence);
  const auto best = [](std::span<const float> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  out.same_best.add(best(first) == best(second) ? 1.0 : 0.0);
  const double first_cost = first_total - static_cast<double>(first[static_cast<size_t>(next)]);
  const double second_cost = second_total - static_cast<double>(second[static_cast<size_t>(next)]);
  out.first.add(first_cost);
  out.second.add(second_cost);
  out.log_ratio.add(second_cost - first_cost);
}

}  // namespace

void Mean::add(double value) {
  sum += value;
  sum_squares += value * value;
  ++count;
}

double Mean::value() const {
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

double Mean::error() const {
  if (count < 2) return 0.0;
  const auto n = static_cast<double>(count);
  return std::sqrt(std::max(0.0, sum_squares / n - value() * value()) / (n - 1));
}

Result<Comparison> compare_models(const Side& first, const Side& second, std::span<const Token> text,
                                  const PerplexityOptions& options,
                                  const std::function<void(const Comparison&)>& done) {
  const int vocab = first.model.spec().vocab;
  if (second.model.spec().vocab != vocab)
    return Error{ErrorCode::InvalidArgument, fmt::format("the models have vocabularies of {} and {} tokens",
                                                         vocab, second.model.spec().vocab)};
  for (const Side* side : {&first, &second})
    if (const Result<int> fits = contexts_of(side->model, text.size(), options); !fits) return fits.error();
  const int contexts = *contexts_of(first.model, text.size(), options);
  PerplexityOptions first_options = options, second_options = options;
  first_options.kv_type = first.kv_type;
  second_options.kv_type = second.kv_type;
  Result<ContextReader> a = ContextReader::make(first.model, first_options);
  if (!a) return a.error();
  Result<ContextReader> b = ContextReader::make(second.model, second_options);
  if (!b) return b.error();
  Comparison out;
  const TimePoint start = Clock::now();
  const auto width = static_cast<size_t>(vocab);
  for (int i = 0; i < contexts; ++i) {
    const std::vector<Token> context = context_at(text, i, options);
    a->run(context);
    b->run(context);
    for (int from = options.context / 2; from < options.context - 1; from += kRowsAtOnce) {
      const int to = std::min(from + kRowsAtOnce, options.context - 1);
      const std::span<const float> rows_a = a->logits(from, to), rows_b = b->logits(from, to);
      for (int row = from; row < to; ++row) {
        const size_t at = static_cast<size_t>(row - from) * width;
        add_row(out, rows_a.subspan(at, width), rows_b.subspan(at, width),
                context[static_cast<size_t>(row) + 1]);
      }
    }
    out.first.contexts = out.second.contexts = i + 1;
    out.first.seconds = out.second.seconds = seconds_since(start);
    done(out);
  }
  return out;
}

}  // namespace sluice::lab
