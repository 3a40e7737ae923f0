// Latent attention as the back-end has it: over the latents themselves for few new tokens a sequence (the queries brought
// into the latent space), over keys and values made from them for many.
#pragma once

#include <map>

#include "kernels/cuda/attention/attention_dispatch.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/latent/flash_latent.h"
#include "kernels/latent.h"

namespace sluice::kernels::cuda {

class LatentDispatch {
 public:
  // The others outlive this.
  LatentDispatch(StepContext& step, AttentionDispatch& attention, GemmDispatch& gemm)
      : step_(step), attention_(attention), gemm_(gemm), heads_(step, PointerTables::TensorMaps::Bf16) {}

  bool write(const PagedKv& kv, const LatentRows& rows, const RmsGain& norm, const RaggedBatch& batch);
  bool attend(TensorView out, const LatentQueries& q, const PagedKv& kv, const RaggedBatch& batch,
              const LatentShape& shape);

 private:
  using Table = AttentionDispatch::Table;
  // A call of attend() that the kernels take.
  struct Call {
    View out, query, absorbed, mixed;
    CacheView cache;
    const Table& table;
    const PointerTable &key_up, &value_up;
    const LatentShape& shape;
  };
  // A matrix that makes keys and values from cached vectors, made once of those it stacks.
  struct Stacked {
    std::weak_ptr<const void> owner;
    Weight weight;
  };

  bool expands(const LatentShape& shape, const Table& table) const;
  void over_latents(const Call& call, int sequences);
  void expanded(const Call& call);
  // out of each head = x of each head · its matrix, [first, first + n) tokens
  void multiply_heads(const View& out, const View& x, const PointerTable& matrices);
  const AttentionDispatch::LatentPlanned& latent_plan(const Table& table, int heads, int sequences);
  const AttentionDispatch::ExpandedPlanned& expanded_plan(const Table& table, int heads);
  const Weight& stacked(const Call& call);
  // Room for the latents of the contexts of so many tokens, then for their keys and values.
  std::byte* context_memory(const Call& call, int64_t tokens);
  static int64_t latent_bytes(const Call& call, int64_t tokens);

  StepContext& step_;
  AttentionDispatch& attention_;
  GemmDispatch& gemm_;
  PointerTables heads_;
  Scratch partial_;   // results of parts of contexts
  Scratch contexts_;  // latents of whole contexts, then keys and values
  std::map<const void*, Stacked> stacked_;
};

}  // namespace sluice::kernels::cuda
