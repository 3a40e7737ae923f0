// What all consumers' warps share.
#pragma once

#include "kernels/cuda/stack/stack_plan.cuh"

namespace sluice::kernels::cuda::stack {

// What a matrix is multiplied with and where its results go.
struct Stage {
  enum Kind : int { Qkv, Out, GateUp, Down };
  int kind;
  const bf16* x;              // [tokens, columns]
  int columns, first, count;  // groups of eight rows
  bool wait;                  // x is handed over by other blocks
  uint32_t* to;               // [tokens, width], in words
  int width;
  bool last;  // what is made leaves the launch

  __device__ __forceinline__ bool normed() const { return kind % 2 == 0; }
};

template <int Dim>
struct Consumer {
  using L = Layout<Dim>;
  const StackParams& p;
  const Plan& plan;
  uint8_t* shared;
  Cursor cursor;
  int warp, lane, g, t;  // lane = 4 g + t
  int turn = 0, square_turn = 0;

  __device__ __forceinline__ float* whole_parts() const {
    return reinterpret_cast<float*>(shared + L::kParts);
  }
  // Rounds take turns, so that one barrier is enough for each.
  __device__ __forceinline__ float* parts() const { return whole_parts() + turn * kPartWords; }
  __device__ __forceinline__ float* squares() const {
    return reinterpret_cast<float*>(shared + L::kSquares) + square_turn * kWarps * 8;
  }
};

}  // namespace sluice::kernels::cuda::stack
