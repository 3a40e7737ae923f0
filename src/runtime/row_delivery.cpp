#include "runtime/row_delivery.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/system/memory.h"

namespace sluice::runtime {

namespace {

constexpr size_t kRowsAtOnce = 32;  // bounds the logits held at once

size_t end_of_owner(std::span<const PlannedWork> plan, size_t begin) {
  size_t end = begin;
  while (end < plan.size() && plan[end].of.owner == plan[begin].of.owner) ++end;
  return end;
}

// Whole owners, as many as have few enough rows together; at least one.
size_t end_of_portion(std::span<const PlannedWork> plan, size_t begin) {
  size_t end = begin, rows = 0;
  while (end < plan.size() && rows < kRowsAtOnce) {
    const size_t behind = end_of_owner(plan, end);
    for (; end < behind; ++end) rows += static_cast<size_t>(std::max(1, plan[end].host_rows()));
  }
  return end;
}

}  // namespace

// There being no memory for what a sequence makes of its rows fails that sequence alone.
void RowDelivery::consume(SeqId owner, Sequence& sequence, const PromptRows& prompt, const StepRows& rows,
                          std::vector<request::Outcome>& outcomes) {
  std::optional<request::Outcome> outcome;
  try {
    if (prompt.count > 0) sequence.read_prompt(prompt, workspace_);
    outcome = sequence.consume(rows);
  } catch (const std::bad_alloc&) {
    sequence.fail(out_of_memory());
    outcome = request::Outcome{owner, out_of_memory(), {}};
  }
  if (!outcome) return;
  outcome->seq = owner;
  outcomes.push_back(*std::move(outcome));
}

// The last rows of many sequences are read at once: the output matrix is the largest of small models, and is then streamed
// once for all of them.
void RowDelivery::read_last(std::span<const PlannedWork> portion) {
  ModelRunner::Wanted wanted{.logits = true};
  const auto read = [&](StepRunner& model, ModelRunner::Rows& out) {
    if (!rows_.empty()) model.runner().read(rows_, wanted, out);
    rows_.clear();
  };
  rows_.clear();
  for (const PlannedWork& item : portion) {
    for (int i = item.host_rows(); i > 0; --i) rows_.push_back(item.last_row() + 1 - i);
    wanted.hidden |= item.host_rows() > 0 && item.need.last_hidden;
  }
  read(target_, last_rows_);
  if (contrast_ == nullptr) return;
  wanted.hidden = false;
  for (const PlannedWork& item : portion) {
    if (item.need.last == StepNeed::Last::Host && item.need.contrast)
      rows_.push_back(item.contrast_row + item.work->end - 1 - item.work->begin);
  }
  read(*contrast_, contrast_rows_);
}

void RowDelivery::read_prompt(const PlannedWork& item) {
  const auto read = [&](StepNeed::Range range, ModelRunner::Wanted wanted, int at_once) {
    for (int begin = range.begin; begin < range.end; begin += at_once) {
      const int count = std::min(at_once, range.end - begin);
      rows_.resize(static_cast<size_t>(count));
      std::iota(rows_.begin(), rows_.end(), item.row(begin));
      target_.runner().read(rows_, wanted, prompt_rows_);
      PromptRows rows{.begin = begin, .count = count};
      if (wanted.logits) rows.logits = prompt_rows_.logits;
      if (wanted.hidden) rows.hidden = prompt_rows_.hidden;
      item.of.sequence->read_prompt(rows, workspace_);
    }
  };
  try {
    read(item.need.hidden, {.hidden = true}, std::max(1, item.need.hidden.size()));
    read(item.need.logits, {.logits = true}, static_cast<int>(kRowsAtOnce));
  } catch (const std::bad_alloc&) {
    item.of.sequence->fail(out_of_memory());
  }
}

void RowDelivery::deliver_now(std::span<const PlannedWork> plan, std::vector<request::Outcome>& outcomes) {
  const auto vocab = static_cast<size_t>(target_.spec().vocab), dim = static_cast<size_t>(target_.spec().dim);
  for (size_t begin = 0; begin < plan.size();) {
    const size_t end = end_of_portion(plan, begin);
    const std::span<const PlannedWork> portion = plan.subspan(begin, end - begin);
    begin = end;
    read_last(portion);
    size_t next = 0, next_contrast = 0;
    for (size_t first = 0; first < portion.size();) {
      const PlannedWork& lead = portion[first];
      host_rows_.clear();
      bool reads = false;
      const size_t behind = end_of_owner(portion, first);
      for (; first < behind; ++first) {
        const PlannedWork& item = portion[first];
        reads |= item.need.reads_host();
        if (item.need.logits.size() + item.need.hidden.size() > 0) read_prompt(item);
        for (int i = item.host_rows(); i > 0; --i, ++next) {
          HostRow& row = host_rows_.emplace_back();
          row.logits = std::span(last_rows_.logits).subspan(next * vocab, vocab);
          if (item.need.last_hidden) row.hidden = std::span(last_rows_.hidden).subspan(next * dim, dim);
          if (contrast_ != nullptr && item.need.contrast)
            row.contrast = std::span(contrast_rows_.logits).subspan(next_contrast++ * vocab, vocab);
        }
      }
      if (reads)
        consume(lead.of.owner, *lead.of.sequence, {}, {.last = host_rows_, .workspace = workspace_},
                outcomes);
    }
  }
}

RowDelivery::Count RowDelivery::count(std::span<const PlannedWork> plan) const {
  Count rows;
  for (const PlannedWork& item : plan) {
    rows.hidden += static_cast<size_t>(item.need.hidden.size());
    if (item.need.last != StepNeed::Last::Host) continue;
    ++rows.last;
    rows.contrast += contrast_ != nullptr && item.need.contrast ? 1 : 0;
    rows.last_hidden |= item.need.last_hidden;
  }
  return rows;
}

size_t RowDelivery::floats(const Count& rows) const {
  const auto vocab = static_cast<size_t>(target_.spec().vocab), dim = static_cast<size_t>(target_.spec().dim);
  return (rows.last + rows.contrast) * vocab + (rows.hidden + (rows.last_hidden ? rows.last : 0)) * dim;
}

bool RowDelivery::can_send(std::span<const PlannedWork> plan) const {
  if (device_ == nullptr) return false;
  const bool prompts = std::any_of(plan.begin(), plan.end(), [](const PlannedWork& item) {
    return item.need.logits.size() > 0 || item.need.attention;
  });
  const Count rows = count(plan);
  const bool elsewhere = rows.contrast > 0 && contrast_->runner().model().backend->async_device() != device_;
  return !prompts && !elsewhere && floats(rows) <= kMostSent;
}

float* RowDelivery::staging(size_t count) {
  Pinned& pinned = pinned_[sent_++ % kSteps];
  if (pinned.floats < count) {
    pinned = {};
    pinned.memory = device_->allocate_pinned(2 * count * sizeof(float));
    pinned.floats = 2 * count;
  }
  return reinterpret_cast<float*>(pinned.memory.get());
}

// Rows that stand together among the sampled ones go together.
void RowDelivery::send_last(std::span<const PlannedWork> plan, TensorView rows, std::span<float> to) {
  const auto width = static_cast<size_t>(rows.dim(1));
  int begin = 0, end = 0;
  const auto flush = [&] {
    if (begin == end) return;
    device_->send_rows(rows.rows(begin, end), to.data());
    to = to.subspan(static_cast<size_t>(end - begin) * width);
  };
  for (const PlannedWork& item : plan) {
    if (item.need.last != StepNeed::Last::Host) continue;
    if (item.sampled != end) {
      flush();
      begin = item.sampled;
    }
    end = item.sampled + 1;
  }
  flush();
}

void RowDelivery::send_contrast(std::span<const PlannedWork> plan, float* to) {
  rows_.clear();
  for (const PlannedWork& item : plan) {
    if (item.need.last == StepNeed::Last::Host && item.need.contrast)
      rows_.push_back(item.contrast_row + item.work->end - 1 - item.work->begin);
  }
  device_->send_rows(contrast_->runner().outputs(rows_).logits, to);
}

void RowDelivery::send(std::span<const PlannedWork> plan, const ModelRunner::Outputs& outputs,
                       AwaitedRows& awaited) {
  const Count rows = count(plan);
  const auto vocab = static_cast<size_t>(target_.spec().vocab), dim = static_cast<size_t>(target_.spec().dim);
  float* logits = floats(rows) > 0 ? staging(floats(rows)) : nullptr;
  float* contrast = logits + rows.last * vocab;
  float* last_hidden = contrast + rows.contrast * vocab;
  float* hidden = last_hidden + (rows.last_hidden ? rows.last * dim : 0);
  if (rows.last > 0) send_last(plan, outputs.logits, {logits, rows.last * vocab});
  if (rows.last_hidden) send_last(plan, outputs.hidden, {last_hidden, rows.last * dim});
  if (rows.contrast > 0) send_contrast(plan, contrast);
  for (const PlannedWork& item : plan) {
    const bool same = !awaited.items.empty() && awaited.items.back().owner == item.of.owner;
    if (item.need.last == StepNeed::Last::None && item.need.hidden.size() == 0) continue;
    if (!same) awaited.items.push_back({.owner = item.of.owner, .first_row = awaited.last.size()});
    AwaitedRows::Item& owed = awaited.items.back();
    if (item.need.last == StepNeed::Last::Device) {
      owed.sampled = item.sampled;
      owed.drafts = item.need.drafts;
    }
    if (const int count = item.need.hidden.size(); count > 0) {
      rows_.resize(static_cast<size_t>(count));
      std::iota(rows_.begin(), rows_.end(), item.row(item.need.hidden.begin));
      device_->send_rows(target_.runner().hidden(rows_), hidden);
      owed.prompt = {item.need.hidden.begin, count, {}, {hidden, static_cast<size_t>(count) * dim}};
      hidden += static_cast<size_t>(count) * dim;
    }
    if (item.need.last != StepNeed::Last::Host) continue;
    HostRow& row = awaited.last.emplace_back();
    ++owed.rows;
    row.logits = {std::exchange(logits, logits + vocab), vocab};
    if (rows.last_hidden) row.hidden = {std::exchange(last_hidden, last_hidden + dim), dim};
    if (contrast_ != nullptr && item.need.contrast)
      row.contrast = {std::exchange(contrast, contrast + vocab), vocab};
  }
}

void RowDelivery::deliver(const AwaitedRows& awaited, std::span<const kernels::SampledToken> sampled,
                          const SequenceTable& sequences, std::vector<request::Outcome>& outcomes) {
  for (const AwaitedRows::Item& item : awaited.items) {
    Sequence* sequence = sequences.find(item.owner);
    if (sequence == nullptr) continue;  // retired meanwhile
    StepRows rows{.last = std::span(awaited.last).subspan(item.first_row, item.rows),
                  .workspace = workspace_};
    if (item.sampled >= 0)
      rows.sampled = sampled.subspan(static_cast<size_t>(item.sampled), static_cast<size_t>(1 + item.drafts));
    consume(item.owner, *sequence, item.prompt, rows, outcomes);
  }
}

}  // namespace sluice::runtime
