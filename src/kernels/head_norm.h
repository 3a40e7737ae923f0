// Heads that are normed before they are rotated and stored, in one operation, for back-ends that have it: models compose it
// of plain operations elsewhere.
#pragma once

#include "kernels/backend.h"

namespace sluice::kernels {

// Queries and keys with an rms norm over each head; one gain of the head's size for all heads, f32, or none.
struct NormedHeads {
  QkvHeads heads;
  TensorView q_gain, k_gain;
  float eps = 1e-6f;
};

class HeadNormDevice {
 public:
  virtual ~HeadNormDevice() = default;
  // Norms q and k, then does as Backend::rope_write_kv. False, and nothing done, where the shape or the types are not what
  // the device's kernel takes.
  virtual bool norm_rope_write_kv(const PagedKv& kv, const NormedHeads& x, TensorView angles, RopeStyle style,
                                  const RaggedBatch& batch) = 0;
};

}  // namespace sluice::kernels
