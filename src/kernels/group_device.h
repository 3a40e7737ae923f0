// What a back-end whose activations lie on a device has beside backend.h for ranks that compute one model together: their
// sums, made where the activations are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"

namespace sluice::kernels {

// Ipc: kernels of our own over memory that the ranks of one machine map. Auto: Ipc within a machine, else Nccl.
enum class Collectives : uint8_t { Auto, Ipc, Nccl };

// The ranks that share a model's layers, as one of them sees them.
struct RankExchange {
  int rank = 0, size = 1;
  // The bytes of every rank, in their order. All ranks call it, each with as many of its own. May throw.
  std::function<std::vector<std::byte>(std::span<const std::byte>)> all_gather;
};

// All ranks make the same calls in the same order. Calls join the device's work as those of Backend do and may be part of a
// step that is replayed. Views are contiguous.
class DeviceCollective {
 public:
  virtual ~DeviceCollective() = default;

  virtual std::string name() const = 0;
  // x[n, width] becomes its sum over the ranks, with the same bits on each of them.
  virtual void add_up(TensorView x) = 0;
  // x.sum += x.b_scale * (x.b summed over the ranks); out = rms_norm(x.sum). x.b is left as it was. Returns false, and has
  // done nothing, where the sum has to be made by itself; that depends on shapes and options alone.
  virtual bool add_up_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) = 0;
  // out[n, width], complete on rank 0: the columns of each rank, dist::share_of(width, rank, size), from its part.
  virtual void gather_columns(TensorView out, TensorView part) = 0;
  // Rows i of x with kept[i] == 0 become zeros.
  virtual void clear_rows(TensorView x, std::span<const int32_t> kept) = 0;
  // A rank that did not come to a collective of the work done so far: what that work has left behind is of no use.
  virtual std::optional<int> missing_rank() const = 0;
  // How long the device waits for a rank; 0: without end.
  virtual double patience_seconds() const = 0;
};

class GroupDevice {
 public:
  virtual ~GroupDevice() = default;

  // The machine and the GPU: ranks of the same text share one.
  virtual std::string identity() const = 0;
  // Joins the ranks; all of them call it and get a collective, or all get an error.
  virtual Result<std::unique_ptr<DeviceCollective>> join(const RankExchange& ranks, Collectives kind) = 0;
};

}  // namespace sluice::kernels
