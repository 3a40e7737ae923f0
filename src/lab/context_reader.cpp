#include "lab/context_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace sluice::lab {

double surprise(std::span<const float> logits, Token token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit - largest));
  return std::log(total) - static_cast<double>(logits[static_cast<size_t>(token)] - largest);
}

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

std::vector<Token> context_at(std::span<const Token> text, int index, const PerplexityOptions& options) {
  const auto size = static_cast<size_t>(options.context);
  const std::span<const Token> part = text.subspan(static_cast<size_t>(index) * size, size);
  std::vector<Token> context(part.begin(), part.end());
  if (options.first) context.front() = *options.first;
  return context;
}

Result<ContextReader> ContextReader::make(const models::Model& model, const PerplexityOptions& options) {
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
  ContextReader reader;
  reader.runner_ = std::move(*runner);
  reader.groups_ = static_cast<int>(groups);
  for (int i = 0; i < blocks; ++i) reader.table_.push_back(BlockId{i});
  reader.vocab_ = model.spec().vocab;
  return reader;
}

void ContextReader::run(std::span<const Token> context) {
  const std::optional<runtime::StateGroup> states = runner_->memory().state_group();
  runtime::Batch batch(groups_, states);
  std::vector<std::span<const BlockId>> tables(static_cast<size_t>(groups_), table_);
  const std::vector<BlockId> one_slot(table_.size(), BlockId{0});
  if (states) tables[static_cast<size_t>(states->group)] = one_slot;
  batch.add(context, 0, tables);
  runner_->forward(batch);
}

std::span<const float> ContextReader::logits(int from, int to) {
  std::vector<int32_t> rows(static_cast<size_t>(to - from));
  std::iota(rows.begin(), rows.end(), from);
  runner_->read(rows, {.logits = true, .hidden = false}, rows_);
  return {rows_.logits.data(), rows.size() * static_cast<size_t>(vocab_)};
}

void ContextReader::for_rows(std::span<const Token> context,
                             FunctionRef<void(std::span<const float>, Token)> visit) {
  const auto size = static_cast<int>(context.size());
  const auto width = static_cast<size_t>(vocab_);
  for (int from = size / 2; from < size - 1; from += kRowsAtOnce) {
    const int to = std::min(from + kRowsAtOnce, size - 1);
    const std::span<const float> all = logits(from, to);
    for (int i = from; i < to; ++i)
      visit(all.subspan(static_cast<size_t>(i - from) * width, width), context[static_cast<size_t>(i) + 1]);
  }
}

}  // namespace sluice::lab
