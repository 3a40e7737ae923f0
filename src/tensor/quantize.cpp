#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quantize_search.h"

namespace sluice {

namespace {

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
  stored_half(out, d);
  if (half == 16) store_fifth_bits(out + 2, codes);
  store_nibbles(out + (half == 16 ? 6 : 2), codes);
}

// Q4_1 and Q5_1: the smallest becomes 0, the largest `most`.
void quantize_ranged(const float* x, uint8_t* out, int most) {
  const float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
  const float d = (high - low) / static_cast<float>(most), inverse = inverse_of(d);
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = clipped((x[i] - low) * inverse + 0.5f, most);
  stored_half(out, d);
  stored_half(out + 2, low);
  if (most == 31) store_fifth_bits(out + 4, codes);
  store_nibbles(out + (most == 31 ? 8 : 4), codes);
}

void quantize_q8_0(const float* x, uint8_t* out) {
  const float d = std::abs(extreme(x, 32)) / 127, inverse = inverse_of(d);
  stored_half(out, d);
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
  stored_half(out + 52, d);
}

void quantize_tq2_0(const float* x, uint8_t* out) {
  const float d = std::abs(extreme(x, 256));
  uint8_t codes[256];
  ternary_codes(x, inverse_of(d), codes);
  std::memset(out, 0, 64);
  for (int i = 0; i < 256; ++i)
    out[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(codes[i] << (i % 128 / 32 * 2));
  stored_half(out + 64, d);
}

// Q4_0 and Q5_0 of least weighted error.
void quantize_centred(const float* x, const float* importance, uint8_t* out, int half) {
  float weights[32];
  weigh_by_importance(x, importance, 32, mean_square(x, 32), weights);
  const float inverse = inverse_of(stored_half(out, search_scale(x, weights, 32, half)));
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = std::clamp(nearest_integer(x[i] * inverse), -half, half - 1) + half;
  if (half == 16) store_fifth_bits(out + 2, codes);
  store_nibbles(out + (half == 16 ? 6 : 2), codes);
}

// Q4_1 and Q5_1 of least weighted error.
void quantize_ranged(const float* x, const float* importance, uint8_t* out, int most) {
  float weights[32];
  weigh_by_importance(x, importance, 32, mean_square(x, 32), weights);
  const ScaleAndMin found = search_range(
      x, weights, 32, {.most = most, .first = -0.9f, .step = 0.05f, .steps = 36, .absolute = false});
  const float inverse = inverse_of(stored_half(out, found.scale)), low = stored_half(out + 2, -found.min);
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = std::clamp(nearest_integer((x[i] - low) * inverse), 0, most);
  if (most == 31) store_fifth_bits(out + 4, codes);
  store_nibbles(out + (most == 31 ? 8 : 4), codes);
}

// One exponent for 32 numbers of e2m1: the largest lies in [4, 8) times the scale.
void quantize_mxfp4(const float* x, uint8_t* out) {
  constexpr float kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
  const float most = std::abs(extreme(x, 32));
  const int exponent = most > 0.0f ? static_cast<int>(std::floor(std::log2(most))) - 2 + 127 : 0;
  out[0] = static_cast<uint8_t>(std::clamp(exponent, 0, 254));
  const float half = std::ldexp(1.0f, out[0] - 128);
  int codes[32];
  for (int i = 0; i < 32; ++i) {
    codes[i] = 0;
    for (int code = 1; code < 16; ++code)
      if (std::abs(half * kValues[code] - x[i]) < std::abs(half * kValues[codes[i]] - x[i])) codes[i] = code;
  }
  store_nibbles(out + 1, codes);
}

// Of the types that make use of what columns count.
bool quantize_important_block(DType type, const float* x, const float* importance, uint8_t* out) {
  switch (type) {
    case DType::Q4_0:
      quantize_centred(x, importance, out, 8);
      return true;
    case DType::Q5_0:
      quantize_centred(x, importance, out, 16);
      return true;
    case DType::Q4_1:
      quantize_ranged(x, importance, out, 15);
      return true;
    case DType::Q5_1:
      quantize_ranged(x, importance, out, 31);
      return true;
    default:
      return false;
  }
}

void quantize_block(DType type, const float* x, const float* importance, uint8_t* out) {
  if (importance != nullptr && quantize_important_block(type, x, importance, out)) return;
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
      return quantize_iq4_nl(x, importance, out);
    case DType::IQ4_XS:
      return quantize_iq4_xs(x, importance, out);
    case DType::MXFP4:
      return quantize_mxfp4(x, out);
    case DType::TQ1_0:
      return quantize_tq1_0(x, out);
    case DType::TQ2_0:
      return quantize_tq2_0(x, out);
    case DType::Q2_K:
      return quantize_q2_k(x, importance, out);
    case DType::Q3_K:
      return quantize_q3_k(x, importance, out);
    case DType::Q4_K:
      return quantize_q4_k(x, importance, out);
    case DType::Q5_K:
      return quantize_q5_k(x, importance, out);
    case DType::Q6_K:
      return quantize_q6_k(x, importance, out);
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
    case DType::IQ4_XS:
    case DType::MXFP4:
    case DType::TQ1_0:
    case DType::TQ2_0:
      return true;
    default:
      return false;
  }
}

void quantize_row(DType type, const float* row, uint8_t* out, int64_t elements, const float* importance) {
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
      quantize_block(type, row + i, importance == nullptr ? nullptr : importance + i, out);
  }
}

}  // namespace sluice
