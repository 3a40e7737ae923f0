// Latent attention as one operation, for back-ends that have it: models compose it of plain operations elsewhere. Every
// head's query meets one cached vector per token, [latent, rope]; its first part also is the value.
#pragma once

#include "kernels/backend.h"

namespace sluice::kernels {

struct LatentShape {
  int heads = 0;
  int latent = 0;
  int nope_dim = 0;  // of a head's query, without position
  int rope_dim = 0;  // of a head's query and of the cached vector, with position
  int value_dim = 0;
  float scale = 1.0f;
  std::span<const Weight> key_up;    // per head [latent, nope_dim]: brings a query into the latent space
  std::span<const Weight> value_up;  // per head [value_dim, latent]
};

// What a step's tokens store, and the queries that are rotated with it.
struct LatentRows {
  TensorView latent;  // [n, latent + rope_dim], neither normed nor rotated; its contents are void afterwards
  TensorView query;   // [n, heads, nope_dim + rope_dim], the last rope_dim not rotated
  TensorView angles;
  RopeStyle style = RopeStyle::NeoX;
};

// Queries and memory for what lies between.
struct LatentQueries {
  TensorView query;     // [n, heads, nope_dim + rope_dim], rotated
  TensorView absorbed;  // [n, heads, latent + rope_dim]
  TensorView mixed;     // [n, heads, latent]
};

// Each call returns false, and has done nothing, where the shape or the types are not what the device's kernels take.
class LatentDevice {
 public:
  virtual ~LatentDevice() = default;
  // Norms the first part of latent, rotates the second and stores both; rotates the queries.
  virtual bool write_latent(const PagedKv& kv, const LatentRows& rows, const RmsGain& norm,
                            const RaggedBatch& batch) = 0;
  // out[n, heads, value_dim] = value_up of softmax(scale · q · cachedᵀ) · cached[:latent]
  virtual bool attend_latent(TensorView out, const LatentQueries& q, const PagedKv& kv,
                             const RaggedBatch& batch, const LatentShape& shape) = 0;
};

}  // namespace sluice::kernels
