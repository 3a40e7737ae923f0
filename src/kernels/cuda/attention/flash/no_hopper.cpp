// Linked instead of FlashInfer's kernels for sm_90a where none of the architectures is that: features().hopper is false, and
// nothing but hopper_fits() is called.
#include "kernels/cuda/attention/flash/flash.h"
#include "kernels/cuda/common/host.h"
#include "kernels/cuda/latent/flash_latent.h"

namespace sluice::kernels::cuda {

namespace {

[[noreturn]] void no_hopper() {
  fail("attention of sm_90a", "this program was compiled without it");
}

}  // namespace

bool hopper_fits(const AttentionParams&, int64_t) {
  return false;
}
size_t hopper_schedule_bytes(const FlashShape&, int64_t, int64_t, int64_t) {
  no_hopper();
}
FlashPlan make_hopper_plan(const FlashWorkspace&, const FlashShape&, const FlashBatch&, Stream) {
  no_hopper();
}
void launch_hopper(const FlashParams&, Stream) {
  no_hopper();
}
void launch_latent_sm90(const LatentParams&, Stream) {
  no_hopper();
}
FlashPlan make_expanded_plan(const FlashWorkspace&, const FlashShape&, const FlashBatch&, Stream) {
  no_hopper();
}
void launch_expanded(const ExpandedParams&, Stream) {
  no_hopper();
}

}  // namespace sluice::kernels::cuda
