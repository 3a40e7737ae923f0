// Latent attention beside its matrix work: storing latents, and what turns them into keys and values.
#pragma once

#include "kernels/cuda/attention/attention_params.h"

namespace sluice::kernels::cuda {

// Norms latent[:, :latent_dim], rotates the rest of it, stores both in the cache, and rotates the last rope_dim elements of
// every head of the query in place. bf16.
struct WriteLatentParams {
  View latent, query;
  const float* gain;    // [latent_dim] or null
  const float* angles;  // [n, rope_dim / 2, 2]
  int64_t angle_stride;
  CacheView cache;  // one head of latent_dim + rope_dim
  TableView table;
  int32_t latent_dim, rope_dim, interleaved;
  float eps;
};
bool write_latent_fits(const WriteLatentParams&);
void launch_write_latent(const WriteLatentParams&, Stream);

// out[i] = the vector at slot slots[i] of the cache (block · block_size + slot). bf16.
struct GatherLatentsParams {
  void* out;  // [count, cache.dim]
  CacheView cache;
  const int32_t* slots;
  int64_t count;
  int32_t block_size;
};
void launch_gather_latents(const GatherLatentsParams&, Stream);

// One matrix that makes every head's keys and values from a cached vector: per head nope_dim rows of key_upᵀ, rope_dim rows
// that copy the rotated part, value_dim rows of value_up. bf16.
struct StackLatentParams {
  void* out;                         // [heads · (nope_dim + rope_dim + value_dim), latent_dim + rope_dim]
  const void* const* key_up;         // [heads] device pointers, each [latent_dim, nope_dim]
  const void* const* value_up;       // [heads], each [value_dim, latent_dim]
  int64_t key_stride, value_stride;  // elements of their rows
  int32_t heads, latent_dim, nope_dim, rope_dim, value_dim;
};
void launch_stack_latent(const StackLatentParams&, Stream);

// out[t, h] = x[t, h] · W_hᵀ of up to eight tokens; bf16. REQUIRES: latent_heads_fit(params).
struct LatentHeadsParams {
  View out, x;
  const void* const* weights;  // [heads] device pointers
  Matrix shape;                // of each
};
bool latent_heads_fit(const LatentHeadsParams&);
void launch_latent_heads(const LatentHeadsParams&, Stream);

}  // namespace sluice::kernels::cuda
