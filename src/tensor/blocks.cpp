// Layouts of the block types. A block holds its scales and then its quants, packed; within a byte the low
// bits belong to the earlier half of the group. Products and sums are rounded to f32 one by one in the order
// written.
#include "tensor/blocks.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/float_tables.h"
#include "tensor/grids.h"
#include "tensor/half.h"

namespace sluice {

namespace {

constexpr int kSuper = 256;  // elements of a K block

constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
// e2m1, doubled so that all are whole numbers; the block scale is halved in turn.
constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t load16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | (bytes[1] << 8));
}

uint32_t load32(const uint8_t* bytes) {
  return static_cast<uint32_t>(load16(bytes)) | (static_cast<uint32_t>(load16(bytes + 2)) << 16);
}

float load_f16(const uint8_t* bytes) {
  return f16_to_f32(load16(bytes));
}

// Half of 2^(exponent - 127); the two smallest are subnormal.
float half_e8m0(uint8_t exponent) {
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Byte i of 16 holds element i in its low half and element i + 16 in its high half.
int nibble(const uint8_t* quants, int i) {
  return i < 16 ? quants[i] & 0xf : quants[i - 16] >> 4;
}

int fifth_bit(uint32_t high, int i) {
  return static_cast<int>((high >> i) & 1u) << 4;
}

// {f16 d; u8 quants[16]}
void dequantize_q4_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

// {f16 d; f16 m; u8 quants[16]}
void dequantize_q4_1(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

// {f16 d; u32 fifth bits; u8 quants[16]}
void dequantize_q5_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint32_t high = load32(block + 2);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>((nibble(block + 6, i) | fifth_bit(high, i)) - 16);
}

// {f16 d; f16 m; u32 fifth bits; u8 quants[16]}
void dequantize_q5_1(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  const uint32_t high = load32(block + 4);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 8, i) | fifth_bit(high, i)) + m;
}

// {f16 d; i8 quants[32]}
void dequantize_q8_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

// {u8 scale:4, min:4 [16]; u8 quants[64]; f16 d; f16 dmin}; 16 groups of 16
void dequantize_q2_k(const uint8_t* block, float* out) {
  const uint8_t* quants = block + 16;
  const float d = load_f16(block + 80);
  const float dmin = load_f16(block + 82);
  for (int i = 0; i < kSuper; ++i) {
    const uint8_t scale = block[i / 16];
    const int q = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out[i] =
        d * static_cast<float>(scale & 0xf) * static_cast<float>(q) - dmin * static_cast<float>(scale >> 4);
  }
}

// {u8 third bits[32]; u8 quants[64]; u8 scales[12]; f16 d}; 16 groups of 16 with 6-bit scales
void dequantize_q3_k(const uint8_t* block, float* out) {
  const uint8_t* high = block;
  const uint8_t* quants = block + 32;
  const uint8_t* scales = block + 96;
  const float d = load_f16(block + 108);
  for (int i = 0; i < kSuper; ++i) {
    const int group = i / 16;
    const int low4 = (scales[group % 8] >> (group / 8 * 4)) & 0xf;
    const int high2 = (scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low4 | high2 << 4) - 32);
    const int low = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const int unset = ((high[i % 32] >> (i / 32)) & 1) ^ 1;
    out[i] = scale * static_cast<float>(low - (unset << 2));
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Eight 6-bit scales and mins in 12 bytes: the last four groups keep their high bits in the first eight
// bytes.
ScaleMin scale_min(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 0x3f, packed[group + 4] & 0x3f};
  return {(packed[group + 4] & 0xf) | ((packed[group - 4] >> 2) & 0x30),
          (packed[group + 4] >> 4) | ((packed[group] >> 2) & 0x30)};
}

// {f16 d; f16 dmin; u8 scales[12]; u8 quants[128]}; 8 groups of 32
void dequantize_q4_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* quants = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    for (int i = 0; i < 32; ++i) {
      const int q = (quants[group / 2 * 32 + i] >> (group % 2 * 4)) & 0xf;
      out[group * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// {f16 d; f16 dmin; u8 scales[12]; u8 fifth bits[32]; u8 quants[128]}; 8 groups of 32
void dequantize_q5_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* quants = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    for (int i = 0; i < 32; ++i) {
      const int low = (quants[group / 2 * 32 + i] >> (group % 2 * 4)) & 0xf;
      const int q = low | ((high[i] >> group) & 1) << 4;
      out[group * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// {u8 low nibbles[128]; u8 high pairs[64]; i8 scales[16]; f16 d}; 16 groups of 16
void dequantize_q6_k(const uint8_t* block, float* out) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = load_f16(block + 208);
  for (int i = 0; i < kSuper; ++i) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    const int low4 = (low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4)) & 0xf;
    const int high2 = (high[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out[i] = scale * static_cast<float>((low4 | high2 << 4) - 32);
  }
}

// {f16 d; u8 quants[16]}; quants index a table
void dequantize_iq4_nl(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kIq4NlValues[nibble(block + 2, i)]);
}

// {u8 exponent; u8 quants[16]}
void dequantize_mxfp4(const uint8_t* block, float* out) {
  const float d = half_e8m0(block[0]);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kMxfp4Values[nibble(block + 1, i)]);
}

// {f16 d; f16 zero; u8 quants[16]}: d (q - zero)
void dequantize_q4_z(const uint8_t* block, float* out) {
  const float d = load_f16(block), zero = load_f16(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * (static_cast<float>(nibble(block + 4, i)) - zero);
}

// {f16 d[2]; u8 quants[16]}: a scale for each 16 elements, which are e2m1 doubled
void dequantize_f4_16(const uint8_t* block, float* out) {
  for (int i = 0; i < 32; ++i)
    out[i] = load_f16(block + i / 16 * 2) * static_cast<float>(kMxfp4Values[nibble(block + 4, i)]);
}

// {f16 d; u8 quants[16]}; quants index a table of floats
template <DType type>
void dequantize_float_table(const uint8_t* block, float* out) {
  static constexpr std::array<float, 16> kTable = float_table(type);
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * kTable[static_cast<size_t>(nibble(block + 2, i))];
}

// {u8 unsigned e4m3 d[4]; u8 quants[4][8]}: of each 16 elements the first eight lie in the low halves
void dequantize_nvfp4(const uint8_t* block, float* out) {
  for (int i = 0; i < 64; ++i) {
    const uint8_t byte = block[4 + i / 16 * 8 + i % 8];
    const int code = i % 16 < 8 ? byte & 0xf : byte >> 4;
    out[i] = half_ue4m3(block[i / 16]) * static_cast<float>(kMxfp4Values[code]);
  }
}

// {f16 d; i8 scales[16]; u8 quants[128]}: quants index the type's table, 32 bytes hold two groups of 32
template <DType type>
void dequantize_g4(const uint8_t* block, float* out) {
  const float d = load_f16(block) * grid_factor(type);
  for (int i = 0; i < kSuper; ++i) {
    const uint8_t byte = block[18 + i / 64 * 32 + i % 32];
    const int code = i % 64 < 32 ? byte & 0xf : byte >> 4;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[2 + i / 16]));
    out[i] = scale * static_cast<float>(grid_table(type)[static_cast<size_t>(code)]);
  }
}

template <DType type>
void dequantize_grid(const uint8_t* block, float* out) {
  GridBlock grid;
  expand_grid(type, block, grid);
  const float d = f16_to_f32(grid.d) * grid_factor(kernel_type(type));
  for (int i = 0; i < kSuper; ++i) {
    const float scale = d * static_cast<float>(grid.scales[i / 16]);
    out[i] = scale * static_cast<float>(grid.values[i]);
  }
}

template <void (*decode)(const uint8_t*, float*)>
void dequantize_blocks(DType type, const uint8_t* source, float* out, int64_t elements) {
  const DTypeInfo& layout = info(type);
  SLUICE_CHECK_EQ(elements % layout.block_elements, 0);
  for (int64_t i = 0; i < elements; i += layout.block_elements) {
    decode(source, out + i);
    source += layout.block_bytes;
  }
}

}  // namespace

void dequantize_row(DType type, const void* row, float* out, int64_t elements) {
  const auto* source = static_cast<const uint8_t*>(row);
  switch (type) {
    case DType::F32:
      std::memcpy(out, source, static_cast<size_t>(elements) * sizeof(float));
      return;
    case DType::F16:
      for (int64_t i = 0; i < elements; ++i) out[i] = load_f16(source + 2 * i);
      return;
    case DType::BF16:
      for (int64_t i = 0; i < elements; ++i) out[i] = bf16_to_f32(load16(source + 2 * i));
      return;
    case DType::F8_E4M3:
      for (int64_t i = 0; i < elements; ++i) out[i] = e4m3_to_f32(source[i]);
      return;
    case DType::Q4_0:
      return dequantize_blocks<dequantize_q4_0>(type, source, out, elements);
    case DType::Q4_1:
      return dequantize_blocks<dequantize_q4_1>(type, source, out, elements);
    case DType::Q5_0:
      return dequantize_blocks<dequantize_q5_0>(type, source, out, elements);
    case DType::Q5_1:
      return dequantize_blocks<dequantize_q5_1>(type, source, out, elements);
    case DType::Q8_0:
      return dequantize_blocks<dequantize_q8_0>(type, source, out, elements);
    case DType::Q2_K:
      return dequantize_blocks<dequantize_q2_k>(type, source, out, elements);
    case DType::Q3_K:
      return dequantize_blocks<dequantize_q3_k>(type, source, out, elements);
    case DType::Q4_K:
      return dequantize_blocks<dequantize_q4_k>(type, source, out, elements);
    case DType::Q5_K:
      return dequantize_blocks<dequantize_q5_k>(type, source, out, elements);
    case DType::Q6_K:
      return dequantize_blocks<dequantize_q6_k>(type, source, out, elements);
    case DType::IQ4_NL:
      return dequantize_blocks<dequantize_iq4_nl>(type, source, out, elements);
    case DType::MXFP4:
      return dequantize_blocks<dequantize_mxfp4>(type, source, out, elements);
    case DType::Q4_Z:
      return dequantize_blocks<dequantize_q4_z>(type, source, out, elements);
    case DType::F4_16:
      return dequantize_blocks<dequantize_f4_16>(type, source, out, elements);
    case DType::NF4:
      return dequantize_blocks<dequantize_float_table<DType::NF4>>(type, source, out, elements);
    case DType::FP4:
      return dequantize_blocks<dequantize_float_table<DType::FP4>>(type, source, out, elements);
    case DType::NVFP4:
      return dequantize_blocks<dequantize_nvfp4>(type, source, out, elements);
    case DType::G4_NL:
      return dequantize_blocks<dequantize_g4<DType::G4_NL>>(type, source, out, elements);
    case DType::G4_2:
      return dequantize_blocks<dequantize_g4<DType::G4_2>>(type, source, out, elements);
    case DType::G4_3X:
      return dequantize_blocks<dequantize_g4<DType::G4_3X>>(type, source, out, elements);
    case DType::G4_3S:
      return dequantize_blocks<dequantize_g4<DType::G4_3S>>(type, source, out, elements);
    case DType::IQ1_S:
      return dequantize_blocks<dequantize_grid<DType::IQ1_S>>(type, source, out, elements);
    case DType::IQ1_M:
      return dequantize_blocks<dequantize_grid<DType::IQ1_M>>(type, source, out, elements);
    case DType::IQ2_XXS:
      return dequantize_blocks<dequantize_grid<DType::IQ2_XXS>>(type, source, out, elements);
    case DType::IQ2_XS:
      return dequantize_blocks<dequantize_grid<DType::IQ2_XS>>(type, source, out, elements);
    case DType::IQ2_S:
      return dequantize_blocks<dequantize_grid<DType::IQ2_S>>(type, source, out, elements);
    case DType::IQ3_XXS:
      return dequantize_blocks<dequantize_grid<DType::IQ3_XXS>>(type, source, out, elements);
    case DType::IQ3_S:
      return dequantize_blocks<dequantize_grid<DType::IQ3_S>>(type, source, out, elements);
    case DType::IQ4_XS:
      return dequantize_blocks<dequantize_grid<DType::IQ4_XS>>(type, source, out, elements);
    case DType::TQ1_0:
      return dequantize_blocks<dequantize_grid<DType::TQ1_0>>(type, source, out, elements);
    case DType::TQ2_0:
      return dequantize_blocks<dequantize_grid<DType::TQ2_0>>(type, source, out, elements);
    case DType::I8:
    case DType::I32:
    case DType::U8:
      break;
  }
  SLUICE_CHECK(!"dequantize_row is for weight types");
}

}  // namespace sluice
