// One token from each row of logits (kernels/sample.h says how), one block per row. The row is read once for its largest
// element, once to count elements by value (bf16 has few values) from the largest down, which gives the cuts of top-k
// and top-p, and once for the pick; once more where neither top-k nor a floor bounds the weights, and four times more
// for a cut below the values counted. A masked row is read once more for its largest, an edited one too, and eight times for
// such a cut.
// All but the first time it comes from the L2. Sums are taken in a fixed order, so a row gives the same token wherever
// it stands.
#include "kernels/cuda/sampling/sample_adjust.cuh"
#include "kernels/cuda/sampling/sample_filter.cuh"
#include "kernels/cuda/sampling/sample_logprobs.cuh"
#include "kernels/cuda/sampling/sampling_params.h"

namespace sluice::kernels::cuda {
namespace {

using namespace sampling;

// Ends with the token in s.token, which find_largest() has left there.
template <class Row>
__device__ void choose(const Row& row, const SampleArgs& how, Shared& s) {
  if (how.inverse_temperature <= 0.0f) return;
  const Kept kept = filter(row, how, s);
  pick(row, kept, how.uniform * kept.total, s);
}

// What changes a row's logits before its token is chosen.
struct Changes {
  LogitAdjustment* edits;
  int32_t previous;     // the token in the row's slot
  const uint8_t* mask;  // as in PlainRow
};

// Kept apart, so that the common rows do not pay for its registers.
template <class Plain>
__device__ __noinline__ int32_t sample_adjusted(Plain row, const SampleArgs* how_at, const Changes& changes,
                                                Shared& s) {
  const SampleArgs how = *how_at;
  EditedRow<Plain> changed = edit_row(row, how, changes.edits, changes.previous, s);
  find_largest(changed, s);
  if (changed.largest == -INFINITY) return SampledToken::Excluded;
  choose(changed, how, s);
  return SampledToken::Sampled;
}

template <bool Vector>
__device__ __noinline__ int32_t sample_masked(PlainRow<Vector> plain, const SampleArgs* how_at,
                                              const Changes& changes, Shared& s) {
  const SampleArgs how = *how_at;
  PlainRow<Vector, true> row{plain.data, plain.width, plain.largest, plain.scale, changes.mask};
  if (how.edits > 0 || how.follows != 0) return sample_adjusted(row, how_at, changes, s);
  find_largest(row, s);
  if (row.largest == -INFINITY) return SampledToken::Excluded;
  choose(row, how, s);
  return SampledToken::Sampled;
}

template <bool Vector>
__global__ void __launch_bounds__(kThreads) sample_kernel(const SampleParams p) {
  __shared__ Shared s;
  allow_dependents();
  wait_for_producer();
  const int64_t index = blockIdx.x;
  const SampleArgs* how_at = static_cast<const SampleArgs*>(p.rows) + index;
  const SampleArgs how = *how_at;
  SampledToken& out = static_cast<SampledToken*>(p.out)[index];
  PlainRow<Vector> row{static_cast<const bf16*>(p.logits.data) + index * p.logits.stride_n, p.logits.dim,
                       0.0f, how.inverse_temperature * 1.44269504f};
  find_largest(row, s);
  int32_t status = s.bad != 0                 ? SampledToken::NotFinite
                   : row.largest == -INFINITY ? SampledToken::Nothing
                                              : SampledToken::Sampled;
  if (status == SampledToken::Sampled) {
    Changes changes{static_cast<LogitAdjustment*>(p.edits) + how.first_edit, p.slots[how.slot], nullptr};
    if (how.mask >= 0) {
      changes.mask = reinterpret_cast<const uint8_t*>(p.masks + how.mask * mask_words(row.width));
      status = sample_masked(row, how_at, changes, s);
    } else if (how.edits > 0 || how.follows != 0) {
      status = sample_adjusted(row, how_at, changes, s);
    } else {
      choose(row, how, s);
    }
  }
  if (threadIdx.x == 0) out.status = status, out.logprob = 0.0f, out.top = 0;
  if (status != SampledToken::Sampled) {
    if (threadIdx.x == 0) out.token = p.slots[how.slot] = 0;
    return;
  }
  if (how.logprobs >= 0) report(row, how.logprobs, out, s);
  if (threadIdx.x == 0) out.token = p.slots[how.slot] = s.token;
}

}  // namespace

void launch_sample(const SampleParams& p, Stream stream) {
  if (p.logits.n == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(p.logits.n)), dim3(kThreads)};
  const bool vector = p.logits.dim % 8 == 0 && p.logits.stride_n % 8 == 0 && aligned16(p.logits.data);
  launch("draw", vector ? sample_kernel<true> : sample_kernel<false>, grid, stream, p);
}

}  // namespace sluice::kernels::cuda
