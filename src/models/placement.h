// Which part of a model a rank computes.
//
// Tensor parallel: the ranks of a group compute the same layers, each with its share of the heads, of the feed-forwards'
// inner width and of the vocabulary. Matrices before that are cut by rows, those behind it by columns, and what the latter
// make is summed over the group. Pipeline parallel: consecutive layers, the stream goes from stage to stage.
#pragma once

#include <cstdint>

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

struct Placement {
  Share tensor;
  Share stage;  // of the layers

  bool first_stage() const { return stage.index == 0; }
  bool last_stage() const { return stage.index + 1 == stage.size; }
  Range layers(const ModelSpec& spec) const { return stage.of(static_cast<int64_t>(spec.layers.size())); }
};

// The KV heads that the query heads of a share read; one that several shares read is kept by each.
Range kv_heads_of(const Attention& attention, const Share& share);

// The spec of what a rank computes: its layers, with its share of their heads and widths. dim and vocab stay the model's.
// An error names the count that does not divide, or the part that cannot be cut.
Result<ModelSpec> cut(const ModelSpec& spec, const Placement& placement);

}  // namespace sluice::models
