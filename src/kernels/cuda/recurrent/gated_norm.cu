// out[n, heads, dim] = gate(g) * rms_norm(x) of each head, of bf16, for heads of 64, 128 or 256: what a norm of heads and a gate
// give one by one, with their bits, in one pass over x and g.
//
// Eight elements to a lane, so that 8, 16 or 32 lanes have a head; a warp has several rows of its own on their way at once.
// Bytes: x, g and out once.
#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/recurrent/recurrent_params.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8, kAhead = 4;  // rows that a lane loads before it sums

// grid: (kWarps · kAhead · 32 / kLanes rows)
template <int kLanes>
__global__ void __launch_bounds__(kWarps * 32) gated_norm_kernel(const GatedNormParams p) {
  constexpr int kTogether = 32 / kLanes;  // rows of a warp side by side
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float gain[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) gain[j] = p.gain != nullptr ? __ldg(p.gain + lane * 8 + j) : 1.0f;
  allow_dependents();
  wait_for_producer();
  const auto heads = static_cast<uint32_t>(p.heads), rows = static_cast<uint32_t>(p.x.n) * heads;
  const uint32_t first =
      (blockIdx.x * kWarps + threadIdx.x / 32) * kTogether * kAhead + threadIdx.x % 32 / kLanes;
  uint4 x[kAhead], gate[kAhead];
  uint32_t token[kAhead], column[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const uint32_t row = min(first + i * kTogether, rows - 1);
    token[i] = row / heads;
    column[i] = (row - token[i] * heads) * (8 * kLanes) + lane * 8;
    x[i] = load_activation(static_cast<const bf16*>(p.x.data) + token[i] * p.x.stride_n + column[i]);
    gate[i] = load_activation(static_cast<const bf16*>(p.gate.data) + token[i] * p.gate.stride_n + column[i]);
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    float f[8], g[8];
    unpack8(x[i], f);
    unpack8(gate[i], g);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(f[j], f[j], sum);
#pragma unroll
    for (int o = kLanes / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    const float factor = rsqrtf(sum * (1.0f / (8 * kLanes)) + p.eps);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = f[j] * factor * gain[j];
    unpack8(pack8(f), f);  // rounded, as the norm leaves it
    gate8(g, f, p.activation);
    if (first + i * kTogether < rows)
      *reinterpret_cast<uint4*>(static_cast<bf16*>(p.out.data) + token[i] * p.out.stride_n + column[i]) =
          pack8(g);
  }
}

template <int kLanes>
void launch_lanes(const GatedNormParams& p, Stream stream) {
  const int64_t rows = p.x.n * p.heads, each = int64_t{kWarps} * kAhead * (32 / kLanes);
  launch("norm and gate", gated_norm_kernel<kLanes>,
         {dim3(static_cast<unsigned>(ceil_div(rows, each))), dim3(kWarps * 32)}, stream, p);
}

bool whole_tokens(const View& v) {
  return v.type == DType::BF16 && aligned16(v.data) && v.stride_n % 8 == 0;
}

}  // namespace

bool gated_norm_fits(const GatedNormParams& p) {
  return (p.dim == 64 || p.dim == 128 || p.dim == 256) && p.x.n > 0 && p.x.n * p.heads < (int64_t{1} << 31) &&
         whole_tokens(p.x) && whole_tokens(p.gate) && whole_tokens(p.out);
}

void launch_gated_norm(const GatedNormParams& p, Stream stream) {
  if (p.dim == 64) return launch_lanes<8>(p, stream);
  if (p.dim == 128) return launch_lanes<16>(p, stream);
  launch_lanes<32>(p, stream);
}

}  // namespace sluice::kernels::cuda
