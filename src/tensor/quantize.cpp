#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace sluice {

namespace {

void store_half(uint8_t* to, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, 2);
}

// The element of largest magnitude, the first of several.
float extreme(const float* x, int count) {
  float found = x[0];
  for (int i = 1; i < count; ++i)
    if (std::abs(x[i]) > std::abs(found)) found = x[i];
  return found;
}

float inverse_of(float d) {
  return d == 0.0f ? 0.0f : 1.0f / d;
}

// To nearest, halves away from zero.
float rounded_away(float value) {
  const float size = std::abs(value), whole = std::floor(size);
  return std::copysign(whole + std::floor(2 * (size - whole)), value);
}

int clipped(float value, int most) {
  return std::min(static_cast<int>(value), most);
}

void store_nibbles(uint8_t* to, const int (&codes)[32]) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>((codes[i] & 0xf) | (codes[i + 16] & 0xf) << 4);
}

void store_fifth_bits(uint8_t* to, const int (&codes)[32]) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(to, &bits, 4);
}

// Q4_0 and Q5_0: the extreme becomes -half.
void quantize_centred(const float* x, uint8_t* out, int half) {
  const float d = extreme(x, 32) / static_cast<float>(-half), inverse = inverse_of(d);
  int codes[32];
  for (int i = 0; i < 32; ++i)
    codes[i] = clipped(x[i] * inverse + (static_cast<float>(half) + 0.5f), 2 * half - 1);
  store_half(out, d);
  if (half == 16) store_fifth_bits(out + 2, codes);
  store_nibbles(out + (half == 16 ? 6 : 2), codes);
}

// Q4_1 and Q5_1: the smallest becomes 0, the largest `most`.
void quantize_ranged(const float* x, uint8_t* out, int most) {
  const float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
  const float d = (high - low) / static_cast<float>(most), inverse = inverse_of(d);
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = clipped((x[i] - low) * inverse + 0.5f, most);
  store_half(out, d);
  store_half(out + 2, low);
  if (most == 31) store_fifth_bits(out + 4, codes);
  store_nibbles(out + (most == 31 ? 8 : 4), codes);
}

void quantize_q8_0(const float* x, uint8_t* out) {
  const float d = std::abs(extreme(x, 32)) / 127, inverse = inverse_of(d);
  store_half(out, d);
  for (int i = 0; i < 32; ++i)
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(rounded_away(x[i] * inverse)));
}

// -1, 0 or 1 of each, plus one.
void ternary_codes(const float* x, float inverse, uint8_t* codes) {
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<uint8_t>(static_cast<int>(rounded_away(x[i] * inverse)) + 1);
}

uint8_t five_trits(const uint8_t* codes, int step, int count) {
  constexpr int kPlaces[] = {81, 27, 9, 3, 1};
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += kPlaces[i] * codes[i * step];
  return static_cast<uint8_t>((sum * 256 + 242) / 243);
}

void quantize_tq1_0(const float* x, uint8_t* out) {
  const float d = std::abs(extreme(x, 256));
  uint8_t codes[256];
  ternary_codes(x, inverse_of(d), codes);
  for (int i = 0; i < 32; ++i) out[i] = five_trits(codes + i, 32, 5);
  for (int i = 0; i < 16; ++i) out[32 + i] = five_trits(codes + 160 + i, 16, 5);
  for (int i = 0; i < 4; ++i) out[48 + i] = five_trits(codes + 240 + i, 4, 4);
  store_half(out + 52, d);
}

void quantize_tq2_0(const float* x, uint8_t* out) {
  const float d = std::abs(extreme(x, 256));
  uint8_t codes[256];
  ternary_codes(x, inverse_of(d), codes);
  std::memset(out, 0, 64);
  for (int i = 0; i < 256; ++i)
    out[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(codes[i] << (i % 128 / 32 * 2));
  store_half(out + 64, d);
}

constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

int nearest_nonlinear(float value) {
  const auto* above = std::lower_bound(kNonlinear, kNonlinear + 16, value,
                                       [](int8_t a, float b) { return static_cast<float>(a) < b; });
  if (above == kNonlinear) return 0;
  if (above == kNonlinear + 16) return 15;
  const bool lower = value - static_cast<float>(above[-1]) < static_cast<float>(above[0]) - value;
  return static_cast<int>(above - kNonlinear) - (lower ? 1 : 0);
}

// Scales around the one that brings the extreme to the end of the table; errors weigh by the square of the element.
void quantize_iq4_nl(const float* x, uint8_t* out) {
  const float most = extreme(x, 32);
  float best_d = 0.0f, best_fit = 0.0f;
  for (int step = -7; step <= 7 && most != 0.0f; ++step) {
    const float inverse = (static_cast<float>(step) + static_cast<float>(kNonlinear[0])) / most;
    float along = 0.0f, square = 0.0f;
    for (int i = 0; i < 32; ++i) {
      const auto value = static_cast<float>(kNonlinear[nearest_nonlinear(inverse * x[i])]);
      const float weight = x[i] * x[i];
      along += weight * value * x[i];
      square += weight * value * value;
    }
    if (square <= 0.0f || along * along <= best_fit * square) continue;
    best_fit = along * along / square;
    best_d = along / square;
  }
  store_half(out, best_d);
  uint16_t bits;
  std::memcpy(&bits, out, 2);
  const float inverse = inverse_of(f16_to_f32(bits));
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = nearest_nonlinear(inverse * x[i]);
  store_nibbles(out + 2, codes);
}

void quantize_block(DType type, const float* x, uint8_t* out) {
  switch (type) {
    case DType::Q4_0:
      return quantize_centred(x, out, 8);
    case DType::Q5_0:
      return quantize_centred(x, out, 16);
    case DType::Q4_1:
      return quantize_ranged(x, out, 15);
    case DType::Q5_1:
      return quantize_ranged(x, out, 31);
    case DType::Q8_0:
      return quantize_q8_0(x, out);
    case DType::IQ4_NL:
      return quantize_iq4_nl(x, out);
    case DType::TQ1_0:
      return quantize_tq1_0(x, out);
    case DType::TQ2_0:
      return quantize_tq2_0(x, out);
    case DType::Q2_K:
      return quantize_q2_k(x, out);
    case DType::Q3_K:
      return quantize_q3_k(x, out);
    case DType::Q4_K:
      return quantize_q4_k(x, out);
    case DType::Q5_K:
      return quantize_q5_k(x, out);
    case DType::Q6_K:
      return quantize_q6_k(x, out);
    default:
      SLUICE_CHECK(!"quantize_row is for types that can be made");
  }
}

}  // namespace

bool can_quantize(DType type) {
  switch (type) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::Q4_0:
    case DType::Q4_1:
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q8_0:
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q6_K:
    case DType::IQ4_NL:
    case DType::TQ1_0:
    case DType::TQ2_0:
      return true;
    default:
      return false;
  }
}

void quantize_row(DType type, const float* row, uint8_t* out, int64_t elements) {
  const DTypeInfo& layout = info(type);
  SLUICE_CHECK_EQ(elements % layout.block_elements, 0);
  if (type == DType::F32) {
    std::memcpy(out, row, static_cast<size_t>(elements) * 4);
  } else if (type == DType::F16 || type == DType::BF16) {
    for (int64_t i = 0; i < elements; ++i) {
      const uint16_t bits = type == DType::F16 ? f32_to_f16(row[i]) : f32_to_bf16(row[i]);
      std::memcpy(out + 2 * i, &bits, 2);
    }
  } else {
    for (int64_t i = 0; i < elements; i += layout.block_elements, out += layout.block_bytes)
      quantize_block(type, row + i, out);
  }
}

}  // namespace sluice
