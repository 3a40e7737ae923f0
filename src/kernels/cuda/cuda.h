// The CUDA back-end as the host layers see it. Includes no CUDA header; a build without CUDA links
// absent.cpp, whose make_cuda_backend returns an error that says so.
//
// GEMMs accumulate in f32. F16, F32 and F8_E4M3 matrices become bf16 when they are uploaded; block types stay packed
// on the device and are decoded inside the GEMMs.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/async_device.h"
#include "kernels/backend.h"

namespace sluice::kernels {

// Fp8: plain matrices of 1,024 rows and more, but for tables that are looked up, become e4m3 with one scale per row when
// they are uploaded. Up to 32 tokens meet them as bf16; above, tokens are rounded to e4m3 too, with a scale each.
enum class WeightStorage : uint8_t { AsStored, Fp8 };

// What lies between two operations. F32: a token enters a GEMM as two bf16 numbers, the second of what the first
// leaves over. Attention over a bf16 cache rounds its queries to bf16 all the same; over an f32 cache nothing is rounded.
// Auto: BF16. WideWhereMagnified: F32 for models that make large errors of those of rounding, else BF16. Logits of routers
// are f32 in any case.
enum class Activations : uint8_t { Auto, BF16, F32, WideWhereMagnified };

struct CudaOptions {
  int device = 0;
  WeightStorage weights = WeightStorage::AsStored;
  Activations activations = Activations::Auto;
  size_t workspace_bytes = size_t{64} << 20;  // for cuBLASLt's partial sums
  // A token's results have the same bits whatever else is in the step. Slower, above all for many tokens.
  bool deterministic = false;
  bool whole_stack = true;  // run all layers of a plain dense model in one launch, in steps of few tokens
  // Behave as a device of this architecture (compute capability times ten): its kernels and its limits. 0: as it is.
  int arch = 0;
  bool search = true;  // time cuBLASLt's algorithms at the first use of a shape; off: take its first proposal
};

// Thrown by any call once the device has failed or its memory has run out; the message names the call. After
// an error of the device (not of memory) the back-end is of no more use.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the device can do beyond the instruction set. All work goes to one stream; only download, synchronize,
// wait_sampled and the first use of a shape wait for it. run_step() keeps a graph for every step it has seen twice;
// it is meant for steps whose shapes come back, such as decode; other steps make their calls directly.
class CudaBackend : public Backend, public AsyncDevice {
 public:
  AsyncDevice* async_device() override { return this; }
  // ids I32 [n] = index of the largest element of each row of x; a tie goes to the lower index.
  virtual void argmax(TensorView ids, TensorView x) = 0;
  // embed with ids that are already on the device, I32 [n].
  virtual void embed_device(TensorView out, const Weight& table, TensorView ids) = 0;
  virtual int graphs() const = 0;  // recorded so far
  // Whether copies to or from the host are still under way.
  virtual bool copies_pending() const = 0;
};

// Fails with Unavailable where there is no driver or no such device.
Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const CudaOptions& options);

// The machine's devices, at least one, each with its compute capability and memory; fails as make_cuda_backend does.
Result<std::vector<std::string>> describe_cuda_devices();

}  // namespace sluice::kernels
