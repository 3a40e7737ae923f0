// The tokens of a mixture by expert, and the forms of activations that experts read, for the GEMMs of all experts at once.
//
// A pair is a token and one of its slots. Pairs of an expert lie one behind the other in all memory that is shared by experts:
// rows of f32, forms, results. Nothing here depends on how work is cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/gemm/activations.h"

namespace sluice::kernels::cpu {

// The pairs [begin, begin + count) of one expert, in order of tokens, then of slots.
struct ExpertGroup {
  size_t expert;  // of the bank
  int64_t begin;
  int64_t count;
  int64_t tile;  // of its first kTileTokens pairs: those of an expert begin with one of their own
};

class ExpertGroups {
 public:
  // ids I32 [n, slots]
  void assign(const TensorView& ids, const ExpertBank& bank);

  std::span<const ExpertGroup> all() const { return groups_; }  // of experts that have pairs
  int64_t pairs() const { return pairs_; }
  int64_t tiles() const { return tiles_; }
  // Where a pair lies among those of all experts; -1: its expert is not of the bank.
  int64_t place(int64_t token, int64_t slot) const {
    return places_[static_cast<size_t>(token * slots_ + slot)];
  }
  // REQUIRES: the expert has pairs.
  const ExpertGroup& of(int64_t expert) const {
    return groups_[static_cast<size_t>(group_of_[static_cast<size_t>(expert)])];
  }

 private:
  std::vector<ExpertGroup> groups_;
  std::vector<int64_t> counts_;    // per expert of the bank
  std::vector<int64_t> group_of_;  // per expert of the bank
  std::vector<int64_t> places_;    // per pair
  int64_t slots_ = 0, pairs_ = 0, tiles_ = 0;
};

// The activations of all pairs, [pairs, cols], in the forms that their experts' weights need.
class ExpertForms {
 public:
  // Room in `scratch` for the pairs of all groups. REQUIRES: cols is that of all weights that `needs` is of.
  ExpertForms(const Kernels& kernels, const Needs& needs, int64_t cols, const ExpertGroups& groups,
              ActivationScratch& scratch);

  // Columns of pair `pair` of a group into the forms that lie token by token; columns.begin is a multiple of 32, and row
  // begins at column 0. Those of another pair of the same token are copied where they are of the same form.
  void make_row(const ExpertGroup& group, int64_t pair, const float* row, ColumnRange columns) const;
  // A row that make_row has made of the same floats, for a pair of another group, or of none.
  struct Made {
    int64_t codes = -1;   // pair whose blocks and split are made
    int64_t panels = -1;  // pair whose panels are made
  };
  void make_or_copy(const ExpertGroup& group, int64_t pair, const float* row, Made& made) const;
  // The same columns of all pairs of a group, x [group.count, cols], into the forms that lie by tiles.
  void make_tiles(const ExpertGroup& group, const TensorView& x, ColumnRange columns) const;
  bool has_tiles() const { return needs_.words || needs_.columns; }

  // What GEMMs of the group's expert read besides x [group.count, cols].
  Activations of(const ExpertGroup& group, const TensorView& x) const;

 private:
  bool takes_tiles(const ExpertGroup& group) const { return kernels_.panels.takes_tiles(group.count); }
  TokenTiles bf16_of(const ExpertGroup& group) const {
    return {bf16_.words + group.tile * kTileTokens * 64 * per_row_};
  }

  Kernels kernels_;
  Needs needs_;
  int64_t cols_, per_row_;
  ActivationBlock* blocks_ = nullptr;
  SplitBlock* split_ = nullptr;
  PanelActivations* panels_ = nullptr;
  ActivationTile* tiles_ = nullptr;
  TokenTiles bf16_;
  float* columns_ = nullptr;
};

}  // namespace sluice::kernels::cpu
