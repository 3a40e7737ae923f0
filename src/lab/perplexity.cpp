#include "lab/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "runtime/model_runner.h"

namespace sluice::lab {

namespace {

// -log of softmax(logits)[token]
double surprise(std::span<const float> logits, Token token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit - largest));
  return std::log(total) - static_cast<double>(logits[static_cast<size_t>(token)] - largest);
}

// A model with room for one context.
class Reader {
 public:
  static Result<Reader> make(const models::Model& model, const PerplexityOptions& options) {
    const int blocks = (options.context + options.block_size - 1) / options.block_size;
    const runtime::KvGroups kv = runtime::kv_groups(model.spec());
    const size_t groups = kv.count();
    const std::vector<int> none(groups, 0);
    std::vector<int> sizes(groups, blocks);
    if (kv.states) sizes[static_cast<size_t>(*kv.states)] = 1;
    Result<std::unique_ptr<runtime::ModelRunner>> runner =
        runtime::ModelRunner::make(model, {options.block_size, options.kv_type, sizes},
                                   {.host_blocks = none, .disk_blocks = none, .disk_folder = ""});
    if (!runner) return runner.error();
    Reader reader;
    reader.runner_ = std::move(*runner);
    reader.groups_ = static_cast<int>(groups);
    for (int i = 0; i < blocks; ++i) reader.table_.push_back(BlockId{i});
    reader.vocab_ = model.spec().vocab;
    return reader;
  }

  void score(std::span<const Token> context, Perplexity& out) {
    const std::optional<runtime::StateGroup> states = runner_->memory().state_group();
    runtime::Batch batch(groups_, states);
    std::vector<std::span<const BlockId>> tables(static_cast<size_t>(groups_), table_);
    const std::vector<BlockId> one_slot(table_.size(), BlockId{0});
    if (states) tables[static_cast<size_t>(states->group)] = one_slot;
    batch.add(context, 0, tables);
    runner_->forward(batch);
    const auto size = static_cast<int>(context.size());
    constexpr int kRows = 32;  // of logits that are held at once
    for (int from = size / 2; from < size - 1; from += kRows) {
      std::vector<int32_t> rows(static_cast<size_t>(std::min(kRows, size - 1 - from)));
      std::iota(rows.begin(), rows.end(), from);
      runner_->read(rows, {.logits = true, .hidden = false}, rows_);
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::span<const float> logits(rows_.logits.data() + i * static_cast<size_t>(vocab_),
                                            static_cast<size_t>(vocab_));
        const double cost = surprise(logits, context[static_cast<size_t>(rows[i]) + 1]);
        out.sum += cost;
        out.sum_squares += cost * cost;
        ++out.scored;
      }
    }
  }

 private:
  std::unique_ptr<runtime::ModelRunner> runner_;
  runtime::ModelRunner::Rows rows_;
  std::vector<BlockId> table_;
  int groups_ = 0;
  int64_t vocab_ = 0;
};

Result<int> contexts_of(const models::Model& model, size_t tokens, const PerplexityOptions& options) {
  if (options.context > model.spec().context)
    return Error{ErrorCode::InvalidArgument, fmt::format("a context of {} tokens: the model has {}",
                                                         options.context, model.spec().context)};
  const int fill = static_cast<int>(tokens / static_cast<size_t>(options.context));
  if (fill == 0)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the text has {} tokens and fills no context of {}", tokens, options.context)};
  return options.contexts == 0 ? fill : std::min(fill, options.contexts);
}

}  // namespace

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
  Result<Reader> reader = Reader::make(model, options);
  if (!reader) return reader.error();
  Perplexity out;
  const TimePoint start = Clock::now();
  const auto size = static_cast<size_t>(options.context);
  for (int i = 0; i < *contexts; ++i) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(i) * size);
    std::vector<Token> context(begin, begin + options.context);
    if (options.first) context.front() = *options.first;
    reader->score(context, out);
    out.contexts = i + 1;
    out.seconds = seconds_since(start);
    done(out);
  }
  return out;
}

}  // namespace sluice::lab
