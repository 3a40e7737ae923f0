// What a device that works beside the host can do beyond the instruction set, so that a step is prepared while the one
// before it still runs: whole steps at once, tokens that are sampled where the logits are and used by the next step
// without the host having seen them, and copies to and from host memory beside the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/sample.h"
#include "tensor/tensor.h"

namespace sluice::kernels {

class AsyncDevice {
 public:
  virtual ~AsyncDevice() = default;

  // Runs a step that may come again with other contents. `body` makes the step's Backend calls (begin and sample among
  // them) and nothing else. It may be called twice, or, where the device remembers a step of the same calls on the
  // same memory, only to learn the new contents.
  virtual void run_step(const std::function<void()>& body) = 0;

  // Slots that hold sampled tokens. Backend::embed takes ~slot (below zero) for the token sampled there last.
  virtual int slots() const = 0;
  // One token from each row of logits [rows.size(), vocab], into the row's slot and on the list of sampled tokens.
  // `masks`: [.., mask_words(vocab)].
  virtual void sample(TensorView logits, std::span<const SampleArgs> rows,
                      std::span<const LogitAdjustment> edits, std::span<const uint32_t> masks) = 0;
  // Sends x [rows, width], as f32, to pinned memory of the host: it is there once what a later send_sampled() sends is.
  // REQUIRES: not inside of run_step().
  virtual void send_rows(TensorView x, float* pinned) = 0;
  // Sends the first `count` of the last sample() to the host, once the device has come so far, and with them the word
  // that it has; the ticket is for wait_sampled(). At most kTickets may be outstanding.
  virtual int64_t send_sampled(size_t count) = 0;
  // Waits until the list is there. Valid until kTickets further ones have been sent.
  virtual std::span<const SampledToken> wait_sampled(int64_t ticket) = 0;
  static constexpr int kTickets = 4;

  // Host memory that the device copies to and from by itself.
  virtual std::shared_ptr<std::byte> allocate_pinned(size_t bytes) = 0;
  // Copies between such memory and pieces of the device's, one piece after the other. They run beside the device's work,
  // as if at the time of the call: what was asked for before is seen by a copy to the host, what is asked for later sees
  // a copy from the host and may overwrite what goes to the host. The host may look at, or write, its side after
  // synchronize().
  struct Piece {
    void* data = nullptr;
    size_t bytes = 0;
  };
  virtual void copy_to_host(std::byte* pinned, std::span<const Piece> from) = 0;
  virtual void copy_from_host(std::span<const Piece> to, const std::byte* pinned) = 0;

  // Waits until the device has finished everything asked for.
  virtual void synchronize() = 0;

  struct Room {
    size_t free_bytes = 0, total_bytes = 0;
  };
  virtual Room room() const = 0;

  // Whether the first use of a shape may take time to find the best way to compute it. On until set.
  virtual void set_tuning(bool on) = 0;
  // Why the device is of no more use; empty while it is.
  virtual std::string failure() const = 0;
};

}  // namespace sluice::kernels
