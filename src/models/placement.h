// Which part of a model a rank computes.
//
// Tensor parallel: the ranks of a group compute the same layers, each with its share of the heads, of the feed-forwards'
// inner width and of the vocabulary. Matrices before that are cut by rows, those behind it by columns, and what the latter
// make is summed over the group. Expert parallel: the ranks of a group have whole experts, each a range of them, and what
// they give is summed over the group; the rest of a layer is as tensor parallel has it, or the same on every rank.
// Sequence parallel: between the parts of a layer each rank of a tensor-parallel group has the stream and the norms of its
// share of the step's tokens alone.
// Context parallel: each rank has its share of a step's tokens and of the KV cache, with all weights, or with those that its
// tensor or expert cut gives it: then as many ranks as that cut has are one share of the context together.
// Pipeline parallel: consecutive layers, the stream goes from stage to stage.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "dist/communicator.h"
#include "models/spec.h"

namespace sluice::models {

using dist::Range;

// One of `size` equal parts.
struct Share {
  int index = 0;
  int size = 1;

  bool whole() const { return size == 1; }
  Range of(int64_t count) const { return dist::share_of(count, index, size); }
};

// Over how many ranks a model is cut.
struct Cuts {
  int tensor = 1;
  int experts = 1;  // 1: every rank has all of them, with its share of their inner width
  int stages = 1;
  std::vector<int> stage_layers{};  // of every stage; empty: by what they cost, or were seen to take
  // Steps that stages on CPUs run at the same time; 0: as many as there are stages, those that share their cores counted once.
  int micro_batches = 0;
  bool sequence = false;  // the ranks of the tensor cut share the tokens between the parts of layers

  int context = 1;  // shares of the tokens and of the KV cache, each of as many ranks as summed() says

  // Ranks that have the same tokens and sum what they compute. Experts are cut over those of the tensor cut, where there is one.
  int summed() const { return tensor > 1 ? tensor : experts; }
  // Ranks that have the same layers.
  int group() const { return summed() * context; }
  int ranks() const { return group() * stages; }
  // An error names the options that contradict each other.
  Status check() const;
};

struct Placement {
  Share tensor;
  Share experts;                    // of each layer's, whole ones
  Share expert_inner;               // of the inner width of each of them
  Share stage;                      // of the layers
  Share tokens;                     // of a step, between the parts of layers
  Share context;                    // of the positions of a sequence: those p with p % size == index
  std::vector<int> stage_layers{};  // of every stage; empty: as models::cut_stages() has them
  bool on_host = true;              // ranks compute on CPUs

  bool first_stage() const { return stage.index == 0; }
  bool last_stage() const { return stage.index + 1 == stage.size; }
  // REQUIRES: cut() takes the spec.
  Range layers(const ModelSpec& spec) const;
  // Of every stage.
  std::vector<Range> all_layers(const ModelSpec& spec) const;
  // The logits that the rank computes: its tensor share of the vocabulary on the last stage. Where ranks on the host are stages
  // and nothing else, the first stage has one half and the last the other, so that their work is the same.
  Range logits(int64_t vocab) const;
};

// REQUIRES: cuts.check(). Rank r has place r % cuts.group() of stage r / cuts.group(), and of that place p share
// p / cuts.summed() of the context.
Placement placement_of(int rank, const Cuts& cuts);

// Of `count` KV heads, or groups of a state space, those that the heads of a share read; one that several shares read is
// kept by each. REQUIRES: one of count and share.size divides the other.
Range shared_of(int count, const Share& share);
// Bytes of one position in all layers on a rank that has this share of the context: a part of its KV, all of its index keys.
int64_t kv_bytes_per_token(const ModelSpec& spec, DType kv_type, const Share& context);
// Heads of its indexer that choose for the KV heads of a share.
Range index_heads_of(const Attention& attention, const Share& share);

// The spec of what a rank computes: its layers, with its share of their heads and widths. dim and vocab stay the model's.
// An error names the count that does not divide, or the part that cannot be cut.
Result<ModelSpec> cut(const ModelSpec& spec, const Placement& placement);

}  // namespace sluice::models
