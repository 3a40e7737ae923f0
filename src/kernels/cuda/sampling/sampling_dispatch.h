// Tokens from logits on the device: sampled ones, their slots and their way to the host, and the argmax.
#pragma once

#include <span>

#include "kernels/async_device.h"
#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

class SamplingDispatch {
 public:
  static constexpr int kSlots = 1 << 16;

  // The context outlives this.
  explicit SamplingDispatch(StepContext& step);
  ~SamplingDispatch();
  SamplingDispatch(const SamplingDispatch&) = delete;
  SamplingDispatch& operator=(const SamplingDispatch&) = delete;

  // As in AsyncDevice.
  void sample(TensorView logits, std::span<const SampleArgs> rows, std::span<const LogitAdjustment> edits,
              std::span<const uint32_t> masks);
  int64_t send_sampled(size_t count);
  std::span<const SampledToken> wait_sampled(int64_t ticket);
  // As in CudaBackend.
  void argmax(TensorView ids, TensorView x);
  const int32_t* slots() const { return static_cast<const int32_t*>(slots_.get()); }  // [kSlots]

 private:
  static constexpr int kTickets = AsyncDevice::kTickets;
  // Tokens on their way to the host: of the last sample on the device, of the last few in pinned memory.
  struct Sampled {
    DeviceBuffer device;
    PinnedBuffer host[kTickets];
    cudaEvent_t there[kTickets] = {};
    size_t rows[kTickets] = {};
    size_t capacity = 0;
    int64_t sent = 0;
  };
  void reserve_sampled(size_t rows);
  // In bf16, in scratch memory.
  View rounded(const View& wide);

  StepContext& step_;
  DeviceBuffer slots_;
  Sampled sampled_;
  Scratch scratch_;  // logits as bf16
  DeviceBuffer argmax_keys_;
  int64_t argmax_rows_ = 0;
};

}  // namespace sluice::kernels::cuda
