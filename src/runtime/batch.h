// The arrays of one forward pass, made from the work of a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/backend.h"
#include "kernels/recurrent.h"
#include "models/decoder/decoder.h"

namespace sluice::runtime {

// The group of block tables whose entries are slots of states (request::StateSlots).
struct StateGroup {
  int group = 0;
  int block_size = 16;
};

// Made once and cleared for each pass, so that its arrays keep their memory.
class Batch {
 public:
  explicit Batch(int groups, std::optional<StateGroup> states = {})
      : tables_(static_cast<size_t>(groups)), states_(states) {}

  void clear();
  // Tokens at positions [begin, begin + tokens.size()) of a sequence; `tables` has its blocks per group, `rope_length` is
  // as in request::Work, and the last `drafts` of the tokens may be taken back.
  void add(std::span<const Token> tokens, int begin, std::span<const std::span<const BlockId>> tables,
           int rope_length = 0, int drafts = 0);

  // Rows from `row` on have these embeddings (models::EmbeddedRows), which are kept until clear().
  void embed(int row, TensorView values, std::shared_ptr<void> owner);
  // Rows from `row` on see positions up to `last`, at least their own.
  void see(int row, int rows, int last) { seen_by_.push_back({row, rows, last}); }
  // The row is turned by these positions instead of its own.
  void turn(int row, std::array<int32_t, kernels::kRopeSections> positions) {
    turned_.push_back({row, positions});
  }

  // Tokens added so far: the row of the next one.
  int rows() const { return static_cast<int>(tokens_.size()); }
  int sequences() const { return static_cast<int>(query_begin_.size()) - 1; }
  std::span<const Token> tokens() const { return tokens_; }
  std::span<const models::EmbeddedRows> embedded() const { return embedded_; }
  // Valid until the next add() or clear().
  kernels::RaggedBatch view();
  // The same sequences, where one of the groups holds states.
  kernels::StateBatch state_view() const {
    if (!states_) return {};
    return {query_begin_, states_from_, save_begin_, saves_};
  }

 private:
  struct Table {
    std::vector<int32_t> blocks;  // of all sequences, one behind the other
    std::vector<size_t> ends;     // of each sequence
    size_t width = 0;             // of the longest
    std::vector<int32_t> padded;  // [sequences, width]
  };
  std::vector<Token> tokens_;
  std::vector<int32_t> positions_, rope_lengths_, query_begin_{0};
  std::vector<Table> tables_;  // per group
  std::vector<kernels::RaggedBatch::BlockTable> views_;
  void add_states(std::span<const BlockId> table, int begin, int end, int drafts);

  struct Seeing {
    int row, rows, last;
  };
  struct Turned {
    int row;
    std::array<int32_t, kernels::kRopeSections> positions;
  };
  std::vector<Seeing> seen_by_;
  std::vector<Turned> turned_;
  std::vector<int32_t> seen_, rope_positions_;  // made of them by view()
  std::vector<models::EmbeddedRows> embedded_;
  std::vector<std::shared_ptr<void>> owners_;  // of the embeddings
  std::optional<StateGroup> states_;
  std::vector<int32_t> states_from_, save_begin_{0};
  std::vector<kernels::StateBatch::Save> saves_;
};

}  // namespace sluice::runtime
