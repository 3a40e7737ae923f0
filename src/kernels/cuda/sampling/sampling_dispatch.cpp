#include "kernels/cuda/sampling/sampling_dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/common/views.h"
#include "kernels/cuda/sampling/sampling_params.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

namespace {

// The elements of a span of plain structs, which are whole words.
template <class T>
std::span<const int32_t> words_of(std::span<const T> values) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  return {reinterpret_cast<const int32_t*>(values.data()), values.size() * (sizeof(T) / sizeof(int32_t))};
}

}  // namespace

SamplingDispatch::SamplingDispatch(StepContext& step)
    : step_(step), slots_(allocate_device(kSlots * sizeof(int32_t))) {
  check(cudaMemsetAsync(slots_.get(), 0, kSlots * sizeof(int32_t), step_.stream), "memset");
  for (cudaEvent_t& event : sampled_.there)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
}

SamplingDispatch::~SamplingDispatch() {
  cudaStreamSynchronize(step_.stream);
  for (cudaEvent_t event : sampled_.there) cudaEventDestroy(event);
}

void SamplingDispatch::reserve_sampled(size_t rows) {
  if (rows <= sampled_.capacity) return;
  check(cudaStreamSynchronize(step_.stream), "waiting for the device");
  sampled_.capacity = std::max<size_t>(256, 2 * rows);
  const size_t bytes = sampled_.capacity * sizeof(SampledToken);
  sampled_.device = allocate_device(bytes);
  for (PinnedBuffer& host : sampled_.host) host = allocate_pinned(bytes);
}

View SamplingDispatch::rounded(const View& wide) {
  ConvertParams c = blank<ConvertParams>();
  c.x = wide;
  c.out =
      packed(wide, DType::BF16, scratch_.at_least(static_cast<size_t>(wide.n * wide.heads * wide.dim * 2)));
  step_.issue(launch_convert, c);
  return c.out;
}

void SamplingDispatch::sample(TensorView logits, std::span<const SampleArgs> rows,
                              std::span<const LogitAdjustment> edits, std::span<const uint32_t> masks) {
  SampleParams p = blank<SampleParams>();
  p.logits = view_of(logits);
  SLUICE_CHECK_EQ(p.logits.n, static_cast<int64_t>(rows.size()));
  if (p.logits.type == DType::F32) p.logits = rounded(p.logits);
  if (step_.mode != Mode::Issue) reserve_sampled(rows.size());
  p.rows = step_.put(kTokenBuffer, words_of(rows));
  p.edits = const_cast<int32_t*>(step_.put(kEditBuffer, words_of(edits)));
  p.masks = reinterpret_cast<const uint32_t*>(step_.put(kMaskBuffer, words_of(masks)));
  p.out = sampled_.device.get();
  p.slots = static_cast<int32_t*>(slots_.get());
  step_.issue(launch_sample, p);
}

int64_t SamplingDispatch::send_sampled(size_t count) {
  SLUICE_CHECK_LE(count, sampled_.capacity);
  const int64_t ticket = sampled_.sent++;
  const auto at = static_cast<size_t>(ticket % kTickets);
  sampled_.rows[at] = count;
  // By a kernel: the TMA unit starts late, and after all that waits for it already.
  if (count > 0)
    launch_store_to_host(sampled_.host[at].get(), sampled_.device.get(), count * sizeof(SampledToken),
                         step_.stream);
  check(cudaEventRecord(sampled_.there[at], step_.stream), "event");
  return ticket;
}

std::span<const SampledToken> SamplingDispatch::wait_sampled(int64_t ticket) {
  SLUICE_CHECK(ticket >= sampled_.sent - kTickets && ticket < sampled_.sent);
  const auto at = static_cast<size_t>(ticket % kTickets);
  check(cudaEventSynchronize(sampled_.there[at]), "waiting for a step");
  return {static_cast<const SampledToken*>(sampled_.host[at].get()), sampled_.rows[at]};
}

void SamplingDispatch::argmax(TensorView ids, TensorView x) {
  ArgmaxParams p = blank<ArgmaxParams>();
  p.x = view_of(x);
  SLUICE_CHECK(ids.dtype == DType::I32 && ids.is_contiguous() && ids.elements() == p.x.n);
  p.ids = static_cast<int32_t*>(ids.data);
  if (p.x.n > argmax_rows_) {
    const auto bytes = static_cast<size_t>(p.x.n) * sizeof *p.keys;
    argmax_keys_ = allocate_device(bytes);
    argmax_rows_ = p.x.n;
    check(cudaMemsetAsync(argmax_keys_.get(), 0, bytes, step_.stream), "memset");
    check(cudaStreamSynchronize(step_.stream), "memset");
  }
  p.keys = static_cast<unsigned long long*>(argmax_keys_.get());
  step_.issue(launch_argmax, p);
}

}  // namespace sluice::kernels::cuda
