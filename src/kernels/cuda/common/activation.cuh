// The activations on the device. Codes are those of kernels::Activation.
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

enum ActivationCode : int32_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kRelu2,
  kSwigluOai,
  kElu,
  kSigmoidCode,
  kSoftplus,
  kIdentity
};

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + __expf(-x));
}

__device__ __forceinline__ float activate(float x, int32_t code) {
  switch (code) {
    case kSilu:
      return x * sigmoid(x);
    case kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case kRelu:
      return fmaxf(x, 0.0f);
    case kRelu2:
      return x > 0.0f ? x * x : 0.0f;
    case kElu:
      return x > 0.0f ? x : expm1f(x);
    case kSigmoidCode:
      return sigmoid(x);
    case kSoftplus:
      return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    default:
      return x;
  }
}

__device__ __forceinline__ float gate(float g, float u, int32_t code) {
  if (code != kSwigluOai) return activate(g, code) * u;
  const float limited = fminf(g, 7.0f);
  return limited * sigmoid(1.702f * limited) * (fminf(fmaxf(u, -7.0f), 7.0f) + 1.0f);
}

// Both clamped to [-limit, limit] before they are multiplied; limit 0: not.
__device__ __forceinline__ float gate(float g, float u, int32_t code, float limit) {
  if (!(limit > 0.0f)) return gate(g, u, code);
  return fminf(fmaxf(activate(g, code), -limit), limit) * fminf(fmaxf(u, -limit), limit);
}

// Eight of them; one choice for all, and Silu, which long prompts spend time on, without a division of full precision.
__device__ __forceinline__ void gate8(float* g, const float* u, int32_t code) {
  if (code == kSilu) {
#pragma unroll
    for (int j = 0; j < 8; ++j) g[j] = __fdividef(g[j] * u[j], 1.0f + __expf(-g[j]));
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) g[j] = gate(g[j], u[j], code);
}

}  // namespace sluice::kernels::cuda
