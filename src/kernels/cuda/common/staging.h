// Host arrays of a step (token ids, positions, block tables, attention plans) on their way to the device.
//
// Each buffer is one piece of device memory and two pinned pieces that take turns, so that the next step can
// be staged while the device still works on this one. Arrays are placed one after the other: the same
// sequence of sizes gives the same addresses, which is what lets a recorded step be replayed with new
// contents.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kernels/cuda/common/host.h"

namespace sluice::kernels::cuda {

// Eager: arrays go out at once and kernels are launched. Describe: arrays are collected, nothing is launched.
// Issue: the same calls again, whose arrays are already there; kernels are launched (or recorded).
enum class Mode : uint8_t { Eager, Describe, Issue };

// The buffers: arrays of tokens; edits of logits and masks of tokens, whose number changes from step to step; one per
// block table; then one per attention plan.
inline constexpr size_t kTokenBuffer = 0, kEditBuffer = 1, kMaskBuffer = 2, kTableBuffer = 3, kMaxTables = 15;
inline constexpr size_t kPlanBuffer = kTableBuffer + kMaxTables;

class Staging {
 public:
  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Place {
    std::byte* device = nullptr;
    std::byte* host = nullptr;  // pinned; write here unless the mode is Issue
  };

  // Forgets all arrays and takes the other pinned pieces, once the device has read what was in them.
  void start_step();
  // Places restart from the beginning; used before the Issue pass over the same calls.
  void rewind();
  // Places go on behind all that the step has put, whether there was an Issue pass or not: what is put next must not
  // overwrite pinned memory that is still on its way.
  void go_on();
  // Room for `bytes` in buffer `index`, for the caller to write and send.
  Place reserve(size_t index, size_t bytes);
  // Starts the upload of a place that was written.
  void send(const Place& place, size_t bytes);
  const int32_t* put(size_t index, std::span<const int32_t> values, Mode mode);
  // Uploads what was put since start_step and not sent, and marks the pinned pieces as read.
  void flush();
  // Whether a buffer was replaced by a larger one since the last call: addresses given out before are void
  // then.
  bool take_grown();

 private:
  struct Buffer {
    DeviceBuffer device;
    PinnedBuffer host[2];
    size_t capacity = 0;
    size_t used = 0;
    size_t put = 0;      // bytes in use when the places restarted
    size_t pending = 0;  // bytes that flush() has to send
  };
  void grow(Buffer& buffer, size_t bytes);

  cudaStream_t stream_;
  cudaEvent_t read_[2] = {};
  int turn_ = 0;
  bool marked_ = true;
  bool grown_ = false;
  std::deque<Buffer> buffers_;
  std::vector<Buffer> retired_;  // replaced in this step; earlier arrays of it lie there
};

}  // namespace sluice::kernels::cuda
