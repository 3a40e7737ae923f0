#include "runtime/batch.h"

#include <algorithm>

namespace sluice::runtime {

void Batch::add(std::span<const Token> tokens, int begin, std::span<const std::span<const BlockId>> tables,
                int rope_length) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions_.push_back(begin + static_cast<int32_t>(i));
    rope_lengths_.push_back(std::max(rope_length, positions_.back() + 1));
  }
  query_begin_.push_back(static_cast<int32_t>(tokens_.size()));
  for (size_t group = 0; group < tables_.size(); ++group) {
    std::vector<int32_t>& row = tables_[group].emplace_back();
    for (BlockId block : tables[group]) row.push_back(block.value);
  }
}

kernels::RaggedBatch Batch::view() {
  flat_.clear();
  views_.clear();
  for (const std::vector<std::vector<int32_t>>& rows : tables_) {
    size_t width = 0;
    for (const std::vector<int32_t>& row : rows) width = std::max(width, row.size());
    std::vector<int32_t>& flat = flat_.emplace_back(rows.size() * width, -1);
    for (size_t s = 0; s < rows.size(); ++s)
      std::copy(rows[s].begin(), rows[s].end(), flat.begin() + static_cast<long>(s * width));
    views_.push_back({flat, static_cast<int>(width)});
  }
  return {query_begin_, positions_, views_, rope_lengths_};
}

}  // namespace sluice::runtime
