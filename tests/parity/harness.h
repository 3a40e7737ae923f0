// What the parity tests share: the back-ends of this machine, random tensors and weights, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/weight.h"
#include "tensor/tensor.h"

namespace sluice::parity {

// One CPU back-end per level this machine runs, and AMX over a model of its tiles, each with `threads` threads.
std::vector<std::unique_ptr<kernels::Backend>> cpu_backends(int threads);

// Those with matrix tiles of bf16.
std::vector<std::unique_ptr<kernels::Backend>> tile_backends(int threads);
// Whether the back-end multiplies prepared weights of this type as bf16, and not as it multiplies stored ones.
bool takes_tiles(const kernels::Backend& backend, DType type);
// The same of panels in columns.
bool takes_columns(const kernels::Backend& backend, DType type);

// What attention over keys and values of this type may differ by from the reference: levels that multiply bytes take queries
// and weights as integers of 16 bits, levels with tiles as two numbers of bf16.
float attention_tolerance(const kernels::Backend& backend, DType type);

// SLUICE_PARITY_SMALL in the environment: fewer sizes, for runs under an emulator or the thread sanitizer.
bool small_run();
// n = 1, 2, 3, 5, 8, 16, 17, 33, or fewer in a small run.
std::vector<int64_t> token_counts();

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float normal() { return normal_(engine_); }
  int below(int limit) { return static_cast<int>(engine_() % static_cast<uint32_t>(limit)); }
  HostTensor tensor(std::initializer_list<int64_t> shape, float scale = 1.0f);

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

// A weight with the memory it points to.
struct OwnedWeight {
  std::vector<HostTensor> memory;
  kernels::Weight weight;
};

// Rows of every listed type stacked; finite values of magnitude about 1.
OwnedWeight random_weight(Random& random, const std::vector<DType>& types, int64_t rows_per_part,
                          int64_t cols, bool bias);
// Gives every byte of the blocks this value, but for their float scales.
void fill_codes(const TensorView& view, uint8_t value);
// One row of the weight as floats.
std::vector<float> row_of(const kernels::Weight& weight, int64_t row);

// All types a matmul takes.
std::vector<DType> weight_types();

std::vector<float> values_of(const TensorView& view);
// Equal bits everywhere.
::testing::AssertionResult same_bits(const TensorView& a, const TensorView& b);
// |a - b| <= tolerance * (1 + |b|) everywhere.
::testing::AssertionResult near(const TensorView& a, const TensorView& b, float tolerance);

}  // namespace sluice::parity
