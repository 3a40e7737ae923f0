#include "lab/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"
#include "lab/context_reader.h"

namespace sluice::lab {

void Perplexity::add(double cost) {
  sum += cost;
  sum_squares += cost * cost;
  ++scored;
}

double Perplexity::value() const {
  return std::exp(sum / static_cast<double>(scored));
}

double Perplexity::error() const {
  const auto count = static_cast<double>(scored);
  const double mean = sum / count;
  const double variance = std::max(0.0, sum_squares / count - mean * mean);
  return scored < 2 ? 0 : value() * std::sqrt(variance / (count - 1));
}

Result<Perplexity> measure_perplexity(const models::Model& model, std::span<const Token> text,
                                      const PerplexityOptions& options,
                                      const std::function<void(const Perplexity&)>& done) {
  const Result<int> contexts = contexts_of(model, text.size(), options);
  if (!contexts) return contexts.error();
  Result<ContextReader> reader = ContextReader::make(model, options);
  if (!reader) return reader.error();
  Perplexity out;
  const TimePoint start = Clock::now();
  for (int i = 0; i < *contexts; ++i) {
    const std::vector<Token> context = context_at(text, i, options);
    reader->run(context);
    reader->for_rows(context,
                     [&](std::span<const float> logits, Token next) { out.add(surprise(logits, next)); });
    out.contexts = i + 1;
    out.seconds = seconds_since(start);
    done(out);
  }
  return out;
}

}  // namespace sluice::lab
