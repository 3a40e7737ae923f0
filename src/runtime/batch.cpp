#include "runtime/batch.h"

#include <algorithm>

#include "request/block_tables.h"

namespace sluice::runtime {

void Batch::clear() {
  tokens_.clear();
  positions_.clear();
  rope_lengths_.clear();
  query_begin_.assign(1, 0);
  states_from_.clear();
  save_begin_.assign(1, 0);
  saves_.clear();
  seen_by_.clear();
  turned_.clear();
  embedded_.clear();
  owners_.clear();
  for (Table& table : tables_) {
    table.blocks.clear();
    table.ends.clear();
    table.width = 0;
  }
}

void Batch::add_states(std::span<const BlockId> table, int begin, int end, int drafts) {
  const auto slots = request::StateSlots::of(table, begin, end, states_->block_size, drafts);
  states_from_.push_back(slots.from == request::kNoBlock ? -1 : slots.from.value);
  for (const request::StateSlots::Save& save : slots.saves)
    saves_.push_back({save.position - begin, save.slot.value});
  save_begin_.push_back(static_cast<int32_t>(saves_.size()));
}

void Batch::add(std::span<const Token> tokens, int begin, std::span<const std::span<const BlockId>> tables,
                int rope_length, int drafts) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions_.push_back(begin + static_cast<int32_t>(i));
    rope_lengths_.push_back(std::max(rope_length, positions_.back() + 1));
  }
  query_begin_.push_back(static_cast<int32_t>(tokens_.size()));
  for (size_t group = 0; group < tables_.size(); ++group) {
    Table& table = tables_[group];
    for (const BlockId block : tables[group]) table.blocks.push_back(block.value);
    table.ends.push_back(table.blocks.size());
    table.width = std::max(table.width, tables[group].size());
  }
  if (states_)
    add_states(tables[static_cast<size_t>(states_->group)], begin, begin + static_cast<int>(tokens.size()),
               drafts);
}

void Batch::embed(int row, TensorView values, std::shared_ptr<void> owner) {
  embedded_.push_back({row, values});
  owners_.push_back(std::move(owner));
}

kernels::RaggedBatch Batch::view() {
  views_.clear();
  for (Table& table : tables_) {
    table.padded.assign(table.ends.size() * table.width, -1);
    size_t begin = 0;
    for (size_t s = 0; s < table.ends.size(); ++s) {
      std::copy(table.blocks.begin() + static_cast<long>(begin),
                table.blocks.begin() + static_cast<long>(table.ends[s]),
                table.padded.begin() + static_cast<long>(s * table.width));
      begin = table.ends[s];
    }
    views_.push_back({table.padded, static_cast<int>(table.width)});
  }
  seen_.clear();
  if (!seen_by_.empty()) seen_ = positions_;
  for (const Seeing& span : seen_by_) std::fill_n(seen_.begin() + span.row, span.rows, span.last);
  rope_positions_.clear();
  for (int section = 0; section < kernels::kRopeSections && !turned_.empty(); ++section)
    rope_positions_.insert(rope_positions_.end(), positions_.begin(), positions_.end());
  for (const Turned& turned : turned_)
    for (size_t section = 0; section < turned.positions.size(); ++section)
      rope_positions_[section * positions_.size() + static_cast<size_t>(turned.row)] =
          turned.positions[section];
  return {query_begin_, positions_, views_, rope_lengths_, seen_, rope_positions_};
}

}  // namespace sluice::runtime
