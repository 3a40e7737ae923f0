// Mixtures: routing, and the experts' GEMMs over tokens sorted by expert. Nothing returns to the host in between.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "kernels/cuda/gemm/grouped/grouped_gemm_params.h"
#include "kernels/cuda/gemm/grouped/pointer_tables.h"
#include "kernels/cuda/moe/moe_params.h"

namespace sluice::kernels::cuda {

class MoeDispatch {
 public:
  // The context outlives this.
  explicit MoeDispatch(StepContext& step) : step_(step), experts_(step, PointerTables::TensorMaps::Bf16) {}

  void route(TensorView ids, TensorView weights, TensorView logits, const Routing& routing);
  // ids and weights are of the last route(). Where the bank has a range of the experts alone, they are overwritten.
  void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights, const ExpertBank& bank);

 private:
  // The arguments of moe_ffn(), and the matrices of its experts.
  struct Mixture {
    TensorView out, x, ids, weights;
    const ExpertBank& bank;
    const PointerTable &up, &down;
    RouteParams route;  // where it was put off; else without logits
    int64_t experts() const { return static_cast<int64_t>(bank.gate_up.size()); }
    int64_t pairs() const { return x.dim(0) * ids.dim(1); }
    int64_t inner() const { return bank.down[0].cols; }
  };
  // Scratch memory of a mixture of sorted tokens.
  struct Memory {
    SortParams sort;
    View hidden, active, result;
    View weighed;  // inputs, where the result comes to lie afterwards
    void *entries, *panel;
    void* ordered;  // entries in the order of their experts' columns
  };

  // Whether sorting also gathers the tokens for the first GEMM.
  bool gathers(const Mixture& mixture, bool up_sm90) const;
  bool has_all(const ExpertBank& bank) const;  // experts that the last route() chose from
  void keep_own(TensorView ids, TensorView weights, const ExpertBank& bank);
  // Whether matrices of `table` go through grouped_gemm_sm90.cu.
  bool takes_sm90(const PointerTable& table, DType entries, const Mixture& mixture) const;
  bool few_tokens(
      const Mixture& mixture);  // false, and nothing done, where the kernel does not take the shape
  void sorted(const Mixture& mixture);
  // Whether gate, up and activation are one launch.
  bool gates_in_one(const Mixture& mixture, bool up_sm90) const;
  Memory memory_of(const Mixture& mixture, bool up_sm90, bool down_sm90);
  // The entries that `gemm` reads with their columns in the orders of the table; what it gathers is gathered then.
  void order(GroupedGemmParams& gemm, const PointerTable& table, const Memory& memory);
  void activate(const Mixture& mixture, const Memory& memory);
  void combine(const Mixture& mixture, const Memory& memory);
  // gated: the GEMM ends with the activation. second: with the down matrices, behind_sm90: behind another such GEMM.
  struct ExpertGemm {
    bool gated = false, second = false, behind_sm90 = false;
  };
  void multiply_sm90(const GroupedGemmParams& common, const PointerTable& table, const Memory& memory,
                     ExpertGemm which);

  StepContext& step_;
  PointerTables experts_;
  int routed_ = 0;   // experts that the last route() chose from
  int always_ = 0;   // those of them that every token uses
  Scratch scratch_;  // sorted tokens, hidden states, panels
};

}  // namespace sluice::kernels::cuda
