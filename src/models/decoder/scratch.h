// Buffers of a step, reused from layer to layer and from step to step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/backend.h"

namespace sluice::models {

enum class Buffer : uint8_t {
  Embedded,
  Stream,
  Normed,
  Branch,
  Gathered,  // rows of all ranks
  Extra,
  ParallelInput,  // [n, dim]
  LayerInputs,
  LayerInputPart,
  LayerInputGate,  // beside x
  Streams,
  Predicted,
  StreamPart,
  StreamRoute,
  StreamFactors,
  Laurel,
  LaurelLatent,  // several streams
  Qkv,
  Attended,
  Gated,       // attention
  SquareSums,  // of norms over rows that lie on several ranks
  ContextKv,
  ContextPart,
  ContextParts,
  ContextChosen,  // attention over a KV cache that ranks share
  Query,
  Latent,
  LatentQuery,
  LatentOut,  // latent attention
  IndexQuery,
  IndexKey,
  IndexWeights,
  ChosenPositions,  // indexers; what one layer chose may be read by the next
  MixerIn,
  Mixed,
  MixerGate,
  Decay,  // mixers with a state
  GateUp,
  Inner,
  Activated,
  AdapterLatent,
  Adapted,
  BlockInput,
  RouterLogits,
  ExpertLatent,
  ExpertSum,
  ExpertIds,
  ExpertWeights,
  SharedGate,  // feed-forward
  Angles0,
  Angles1,
  Angles2,
  Angles3,
  KeptStream,
  KeptBranch,
  KeptInput,
  Queries,
  Tapped,
  TappedRows,
  Rows,
  Hidden,
  Logits,
  AllLogits,  // the head
  Count,
};

// A buffer keeps its memory while it is large enough; contents do not survive a larger request.
class Scratch {
 public:
  explicit Scratch(kernels::Backend& backend) : backend_(backend) {}

  TensorView get(Buffer buffer, int64_t rows, int64_t cols) {
    return get(buffer, rows, cols, backend_.activation_type());
  }
  TensorView get(Buffer buffer, int64_t rows, int64_t cols, DType dtype) {
    kernels::Memory& memory = buffers_[static_cast<size_t>(buffer)];
    const int64_t wanted = rows * cols;
    if (memory.view.empty() || memory.view.elements() < wanted || memory.view.dtype != dtype)
      memory = backend_.allocate(dtype, {std::max(wanted, int64_t{1})});
    return TensorView::contiguous(memory.view.data, dtype, {rows, cols}, memory.view.device);
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const kernels::Memory& memory : buffers_)
      if (!memory.view.empty()) sum += row_bytes(memory.view.dtype, memory.view.elements());
    return sum;
  }

 private:
  kernels::Backend& backend_;
  std::array<kernels::Memory, static_cast<size_t>(Buffer::Count)> buffers_;
};

}  // namespace sluice::models
