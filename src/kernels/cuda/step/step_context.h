// What every dispatcher of the back-end launches through: the device and its stream, how the calls of a step are meant, and
// the key by which a step is recognised.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "kernels/cuda/common/host.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/staging.h"
#include "kernels/cuda/gemm/quantized/units_gemm.h"
#include "kernels/cuda/moe/moe_params.h"
#include "kernels/cuda/step/step_key.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

class StepContext {
 public:
  struct Options {
    int device = 0;
    int arch = 90;  // of the rows of gemm_table.h
    int processors = 0;
    bool deterministic = false;
  };
  explicit StepContext(const Options& options);
  ~StepContext() { use_device(); }
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  // CUDA keeps a current device for each thread: call it where a thread may come in for the first time.
  void use_device() const { cuda::use_device(device); }

  // Launches the kernel, or adds the launch to the key of a step that is only described.
  template <class Params>
  void issue(void (*launch)(const Params&, Stream), const Params& params) {
    flush();
    if (mode == Mode::Describe) {
      key.add(reinterpret_cast<const void*>(launch));
      key.add_bytes(&params, sizeof params);
    } else {
      use_device();
      launch(params, stream);
    }
  }
  // Puts a norm off until something else is launched, so that the GEMM of its result can take it over. Within run_step()
  // only, which flushes.
  void defer(const NormParams& norm) {
    flush();
    deferred_ = norm;
  }
  // The norm that was put off, if it makes `x` and nothing else is waiting for it.
  std::optional<NormParams> take_norm(const View& x) {
    const bool whole = deferred_ && deferred_->out.data == x.data && deferred_->factors.squares == nullptr;
    return whole ? std::exchange(deferred_, std::nullopt) : std::nullopt;
  }
  // What is left of a norm that was put off with its first half made, if it makes `x`.
  NormFactors take_factors(const View& x) {
    const bool same = deferred_ && deferred_->factors.squares != nullptr && deferred_->out.data == x.data &&
                      deferred_->out.n == x.n;
    return same ? std::exchange(deferred_, std::nullopt)->factors : blank<NormFactors>();
  }
  // The same for a norm of many tokens, so that it rounds them for a GEMM of fp8. Within a step or not.
  void defer_many(const NormParams& norm) {
    flush();
    deferred_many_ = norm;
  }
  std::optional<NormParams> take_many(const View& x) {
    const bool same = deferred_many_ && deferred_many_->out.data == x.data && deferred_many_->out.n == x.n &&
                      deferred_many_->out.dim == x.dim && deferred_many_->out.stride_n == x.stride_n;
    return same ? std::exchange(deferred_many_, std::nullopt) : std::nullopt;
  }
  // Whether a norm that was put off makes `x`.
  bool norms(const View& x) const {
    return deferred_ && deferred_->out.data == x.data && deferred_->factors.squares == nullptr;
  }
  // The same for a gate, so that what rounds its result for a GEMM can take it over.
  void defer_gate(const PointwiseParams& gate) {
    flush();
    deferred_gate_ = gate;
  }
  std::optional<PointwiseParams> take_gate(const View& x) {
    const bool same = deferred_gate_ && deferred_gate_->out.data == x.data && deferred_gate_->out.n == x.n &&
                      deferred_gate_->out.dim == x.dim && deferred_gate_->out.stride_n == x.stride_n;
    return same ? std::exchange(deferred_gate_, std::nullopt) : std::nullopt;
  }
  // The same for the choice of experts, so that what sorts by it makes it too.
  void defer_route(const RouteParams& route) {
    flush();
    deferred_route_ = route;
  }
  std::optional<RouteParams> take_route(const void* ids) {
    return deferred_route_ && deferred_route_->ids == ids ? std::exchange(deferred_route_, std::nullopt)
                                                          : std::nullopt;
  }
  // The same for a mixture's sum, so that the norm that adds it makes it.
  void defer_combine(const CombineParams& combine) {
    flush();
    deferred_combine_ = combine;
  }
  std::optional<CombineParams> take_combine(const View& out) {
    const bool same = deferred_combine_ && deferred_combine_->out.data == out.data &&
                      deferred_combine_->out.n == out.n && deferred_combine_->out.stride_n == out.stride_n;
    return same ? std::exchange(deferred_combine_, std::nullopt) : std::nullopt;
  }
  // The same for a GEMM of few tokens, so that it rotates and stores queries, keys and values itself.
  void defer_gemm(const UnitsGemmParams& gemm) {
    flush();
    deferred_gemm_ = gemm;
  }
  std::optional<UnitsRopeParams> take_gemm(const RopeWriteParams& rope) {
    if (!deferred_gemm_) return std::nullopt;
    UnitsRopeParams both = blank<UnitsRopeParams>();
    both.units = *deferred_gemm_;
    both.rope = rope;
    if (!units_rope_fits(both)) return std::nullopt;
    deferred_gemm_.reset();
    return both;
  }
  // The same for the second half of a mixture of few tokens, so that it adds to the residual stream itself.
  void defer_down(const FewExpertsParams& down) {
    flush();
    deferred_down_ = down;
  }
  std::optional<FewExpertsParams> take_down(const View& out) {
    const bool same = deferred_down_ && deferred_down_->out.data == out.data &&
                      deferred_down_->out.n == out.n && deferred_down_->out.stride_n == out.stride_n;
    return same ? std::exchange(deferred_down_, std::nullopt) : std::nullopt;
  }
  // Launches what was put off. Called before anything is launched past issue().
  void flush() {
    if (deferred_gemm_) issue(launch_units_few, *std::exchange(deferred_gemm_, std::nullopt));
    if (deferred_many_) issue(launch_norm, *std::exchange(deferred_many_, std::nullopt));
    if (deferred_) issue(launch_norm, *std::exchange(deferred_, std::nullopt));
    if (deferred_gate_) issue(launch_pointwise, *std::exchange(deferred_gate_, std::nullopt));
    if (deferred_route_) issue(launch_route, *std::exchange(deferred_route_, std::nullopt));
    if (deferred_combine_) issue(launch_combine, *std::exchange(deferred_combine_, std::nullopt));
    if (deferred_down_) issue(launch_few_down_bf16, *std::exchange(deferred_down_, std::nullopt));
  }
  void drop_deferred() {
    deferred_many_.reset();
    deferred_gemm_.reset();
    deferred_.reset();
    deferred_gate_.reset();
    deferred_route_.reset();
    deferred_combine_.reset();
    deferred_down_.reset();
  }
  // An array of the host on the device, for this step.
  const int32_t* put(size_t buffer, std::span<const int32_t> values) {
    return staging.put(buffer, values, mode);
  }

  const int device, arch, processors;
  const bool deterministic;
  bool rounds_tokens = false;  // whether there are matrices whose GEMMs round many tokens to fp8

 private:
  std::optional<NormParams> deferred_, deferred_many_;
  std::optional<UnitsGemmParams> deferred_gemm_;
  std::optional<PointwiseParams> deferred_gate_;
  std::optional<RouteParams> deferred_route_;
  std::optional<CombineParams> deferred_combine_;
  std::optional<FewExpertsParams> deferred_down_;
  // Ends after the staging, which waits for it.
  struct OwnedStream {
    explicit OwnedStream(int device);
    ~OwnedStream() { cudaStreamDestroy(stream); }
    OwnedStream(const OwnedStream&) = delete;
    OwnedStream& operator=(const OwnedStream&) = delete;
    cudaStream_t stream = nullptr;
  };
  OwnedStream owned_;

 public:
  const cudaStream_t stream;
  Mode mode = Mode::Eager;
  StepKey key;
  Staging staging;
};

}  // namespace sluice::kernels::cuda
