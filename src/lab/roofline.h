// The least time that a step of a model can take on a machine: what it must read and multiply, over what the machine
// can read and multiply.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "models/model.h"

namespace sluice::lab {

// The formats products are computed in: block types as 8-bit integers, bf16 as it is, all else in f32.
enum class Arithmetic : uint8_t { Int8, Bf16, F32 };
inline constexpr std::array<std::string_view, 3> kArithmeticNames{"int8", "bf16", "f32"};

// Of GEMMs with weights of this type.
Arithmetic arithmetic_of(DType type);

// Of one machine, all threads together.
struct Limits {
  double read = 0;  // bytes per second from memory
  std::array<double, 3>
      multiply{};  // operations per second, by Arithmetic; a multiplication and an addition are two
};

Limits measure_limits(int threads);

// A step in numbers: `sequences` runs of `tokens` new positions each, behind `depth` known ones, with logits for the
// last of each.
struct StepShape {
  int sequences = 1;
  int tokens = 1;
  double depth = 0;
};

// What a step must do at least.
struct StepCost {
  double bytes = 0;                    // weights once, keys and values of the context
  std::array<double, 3> operations{};  // of products with weights, by Arithmetic
  double attention_operations = 0;     // scores and weighted values
};

StepCost step_cost(const models::Model& model, DType kv_type, const StepShape& shape);

enum class Bound : uint8_t { Memory, Compute };

struct Floor {
  double seconds = 0;
  Bound bound = Bound::Memory;  // which of the two takes longer
};

// Reading and multiplying overlap at best, so that a step takes at least the longer of both. Attention is counted at
// the rate of bf16, the fastest that its 16-bit keys and values allow.
Floor step_floor(const StepCost& cost, const Limits& limits);

}  // namespace sluice::lab
