#include "kernels/cpu/panels/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/panels/format.h"
#include "kernels/cpu/panels/panel_types.h"

namespace sluice::kernels::cpu {

namespace {

using Format = PanelFormat;

// The 32 codes of a piece of one row.
using Codes = uint8_t[32];

// Where a stored block keeps its codes: the base bits, and those above them where it has any.
struct Source {
  int base = 0;
  int high = 0;
};

constexpr Source source_of(DType type) {
  switch (type) {
    case DType::Q4_0:
    case DType::Q8_0:
    case DType::IQ4_NL:
    case DType::NF4:
    case DType::FP4:
      return {.base = 2};
    case DType::Q4_1:
    case DType::Q4_Z:
    case DType::F4_16:
      return {.base = 4};
    case DType::G4_NL:
    case DType::G4_2:
    case DType::G4_3X:
    case DType::G4_3S:
      return {.base = 18};
    case DType::Q5_0:
      return {.base = 6, .high = 2};
    case DType::Q5_1:
      return {.base = 8, .high = 4};
    case DType::MXFP4:
      return {.base = 1};
    case DType::Q2_K:
      return {.base = 16};
    case DType::Q3_K:
      return {.base = 32};
    case DType::Q4_K:
      return {.base = 16};
    case DType::Q5_K:
      return {.base = 48, .high = 16};
    case DType::Q6_K:
      return {.base = 0, .high = 128};
    default:
      return {};
  }
}

// Blocks of 32: element i in the low half of byte i, element i + 16 in its high half.
void halves_of_bytes(Codes& codes, const uint8_t* from) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = from[i] & 0xf;
    codes[i + 16] = from[i] >> 4;
  }
}

template <DType type>
void codes_of(Codes& codes, const uint8_t* block, int piece) {
  constexpr Format kFormat = panel_format(type);
  constexpr Source kSource = source_of(type);
  const uint8_t* base = block + kSource.base;
  const uint8_t* high = block + kSource.high;
  if constexpr (kFormat.pieces == 1) {
    if constexpr (kFormat.base == Format::Base::Bytes) {
      for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(base[i] ^ 0x80);  // signed to offset 128
    } else {
      halves_of_bytes(codes, base);
    }
    if constexpr (kFormat.high == Format::High::One) {
      uint32_t bits;
      std::memcpy(&bits, high, 4);
      for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((bits >> i) & 1u) << 4);
    }
  } else if constexpr (type == DType::Q6_K) {
    base += piece / 4 * 64 + piece % 2 * 32;
    high += piece / 4 * 32;
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>(((base[i] >> (piece % 4 / 2 * 4)) & 0xf) |
                                      ((high[i] >> (piece % 4 * 2)) & 3) << 4);
    }
  } else {
    constexpr int kBits = kFormat.base_bits();
    constexpr int kShared = 8 / kBits;  // pieces that share 32 bytes
    base += piece / kShared * 32;
    for (int i = 0; i < 32; ++i)
      codes[i] = static_cast<uint8_t>((base[i] >> (piece % kShared * kBits)) & ((1 << kBits) - 1));
    if constexpr (kFormat.high == Format::High::One) {
      for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((high[i] >> piece) & 1) << kBits);
    }
  }
}

// The codes of one row's piece to their places among the base codes and behind them; `to` is zeroed where bits are joined.
template <DType type>
void place_in_quads(uint8_t* to, const Codes& codes, int64_t row) {
  constexpr Format kFormat = panel_format(type);
  uint8_t* base = to + 4 * row;
  for (int quad = 0; quad < 8; ++quad) {
    for (int i = 0; i < 4; ++i) {
      const int code = codes[4 * quad + i];
      if constexpr (kFormat.base == Format::Base::Nibbles) {
        base[quad % 4 * 64 + i] |= static_cast<uint8_t>((code & 0xf) << (quad / 4 * 4));
      } else if constexpr (kFormat.base == Format::Base::TwoBits) {
        base[quad / 4 * 64 + i] |= static_cast<uint8_t>((code & 3) << (quad % 4 * 2));
      } else {
        base[quad * 64 + i] = static_cast<uint8_t>(code);
      }
      uint8_t* high = base + kFormat.base_bytes();
      if constexpr (kFormat.high == Format::High::One) {
        high[i] |= static_cast<uint8_t>((code >> kFormat.base_bits()) << quad);
      } else if constexpr (kFormat.high == Format::High::Two) {
        high[quad / 4 * 64 + i] |= static_cast<uint8_t>((code >> 4) << (quad % 4 * 2));
      }
    }
  }
}

template <DType type>
void place_in_pairs(uint8_t* to, const Codes& codes, int64_t row) {
  constexpr Format kFormat = panel_format(type);
  const int64_t pair = row / 2;
  for (int i = 0; i < 32; ++i) {
    const int group = i / 8, code = codes[i];
    uint8_t* base = to + row % 2 * 8 + i % 8;
    uint8_t* high = base + kFormat.base_bytes();
    if constexpr (kFormat.base == Format::Base::Nibbles) {
      base[(2 * pair + group % 2) * 16] |= static_cast<uint8_t>((code & 0xf) << (group / 2 * 4));
    } else if constexpr (kFormat.base == Format::Base::TwoBits) {
      base[pair * 16] |= static_cast<uint8_t>((code & 3) << (2 * group));
    } else {
      base[(4 * pair + group) * 16] = static_cast<uint8_t>(code);
    }
    if constexpr (kFormat.high == Format::High::One) {
      high[pair / 2 * 16] |= static_cast<uint8_t>((code >> kFormat.base_bits()) << (pair % 2 * 4 + group));
    } else if constexpr (kFormat.high == Format::High::Two) {
      high[pair * 16] |= static_cast<uint8_t>((code >> 4) << (2 * group));
    }
  }
}

// Types whose stored bytes are those of the panel: only their places change.
template <DType type>
constexpr bool moves_words() {
  constexpr Format kFormat = panel_format(type);
  return kFormat.pieces == 1 && kFormat.high == Format::High::None;
}

template <DType type>
void move_to_quads(uint8_t* to, const uint8_t* from, int64_t row) {
  constexpr int kWords = panel_format(type).base_bits();
  for (int word = 0; word < kWords; ++word) {
    uint32_t bytes;
    std::memcpy(&bytes, from + 4 * word, 4);
    if constexpr (type == DType::Q8_0) bytes ^= 0x80808080u;
    std::memcpy(to + word * 64 + 4 * row, &bytes, 4);
  }
}

template <DType type>
void move_to_pairs(uint8_t* to, const uint8_t* from, int64_t row) {
  constexpr int kWords = panel_format(type).base_bits() / 2;
  for (int word = 0; word < kWords; ++word) {
    uint64_t bytes;
    std::memcpy(&bytes, from + 8 * word, 8);
    if constexpr (type == DType::Q4_0) bytes ^= 0x8888888888888888u;  // offset 8 to signed
    std::memcpy(to + (row / 2 * kWords + word) * 16 + row % 2 * 8, &bytes, 8);
  }
}

struct ScaleMin {
  int scale;
  int min;
};

ScaleMin six_bits(const uint8_t* packed, int piece) {
  if (piece < 4) return {packed[piece] & 0x3f, packed[piece + 4] & 0x3f};
  return {(packed[piece + 4] & 0xf) | ((packed[piece - 4] >> 2) & 0x30),
          (packed[piece + 4] >> 4) | ((packed[piece] >> 2) & 0x30)};
}

template <DType type>
int half_scale(const uint8_t* block, int half) {
  if constexpr (type == DType::Q3_K) {
    const int low = (block[96 + half % 8] >> (half / 8 * 4)) & 0xf;
    const int high = (block[104 + half % 4] >> (half / 4 * 2)) & 3;
    return (low | high << 4) - 32;
  }
  if constexpr (source_of(type).base == 18) return block[2 + half];
  return type == DType::Q2_K ? block[half] : block[192 + half];
}

// Offset of d in the stored super-block; dmin follows it.
constexpr int head_offset(DType type) {
  return type == DType::Q2_K ? 80 : type == DType::Q3_K ? 108 : type == DType::Q6_K ? 208 : 0;
}

template <DType type>
void place_scales(uint8_t* to, const uint8_t* block, int piece, int64_t row) {
  constexpr Format kFormat = panel_format(type);
  constexpr bool kTwo =
      kFormat.scales == Format::Scales::HalfZero || kFormat.scales == Format::Scales::TwoHalves;
  if constexpr (kFormat.scales == Format::Scales::Half || kTwo) {
    std::memcpy(to + 2 * row, block, 2);
    if constexpr (kFormat.mins || kTwo) std::memcpy(to + 32 + 2 * row, block + 2, 2);
  } else if constexpr (kFormat.scales == Format::Scales::E8m0) {
    to[row] = block[0];
  } else if constexpr (kFormat.scales == Format::Scales::KScales) {
    const ScaleMin both = six_bits(block + 4, piece);
    to[row] = static_cast<uint8_t>(both.scale);
    to[16 + row] = static_cast<uint8_t>(both.min);
  } else {
    to[row] = static_cast<uint8_t>(half_scale<type>(block, 2 * piece));
    to[16 + row] = static_cast<uint8_t>(half_scale<type>(block, 2 * piece + 1));
  }
}

template <DType type, PanelLayout layout>
void pack_block(uint8_t* to, const uint8_t* block, int64_t row) {
  constexpr Format kFormat = panel_format(type);
  if constexpr (kFormat.head_bytes() > 0) {
    std::memcpy(to + 2 * row, block + head_offset(type), 2);
    if constexpr (kFormat.mins) std::memcpy(to + 32 + 2 * row, block + head_offset(type) + 2, 2);
    to += kFormat.head_bytes();
  }
  for (int piece = 0; piece < kFormat.pieces; ++piece, to += kFormat.piece_bytes()) {
    place_scales<type>(to, block, piece, row);
    uint8_t* places = to + kFormat.scale_bytes();
    if constexpr (moves_words<type>()) {
      const uint8_t* stored = block + source_of(type).base;
      if constexpr (layout == PanelLayout::Pairs) {
        move_to_pairs<type>(places, stored, row);
      } else {
        move_to_quads<type>(places, stored, row);
      }
    } else {
      Codes codes;
      codes_of<type>(codes, block, piece);
      if constexpr (layout == PanelLayout::Pairs) {
        place_in_pairs<type>(places, codes, row);
      } else {
        place_in_quads<type>(places, codes, row);
      }
    }
  }
}

template <DType type, PanelLayout layout>
void pack(uint8_t* to, const StoredRows& from, int64_t panel) {
  constexpr Format kFormat = panel_format(type);
  const int64_t stride = row_bytes(type, from.cols);
  const int64_t supers = from.cols / info(type).block_elements;
  const int64_t rows = std::min(kPanelRows, from.rows - panel * kPanelRows);
  const uint8_t* first = from.data + panel * kPanelRows * stride;
  // Super-block by super-block: a panel's piece stays in the first cache while its rows are placed.
  for (int64_t super = 0; super < supers; ++super) {
    uint8_t* at = to + super * kFormat.super_bytes();
    std::memset(at, 0, static_cast<size_t>(kFormat.super_bytes()));
    for (int64_t row = 0; row < rows; ++row)
      pack_block<type, layout>(at, first + row * stride + super * info(type).block_bytes, row);
  }
}

void pack_words(uint8_t* to, const StoredRows& from, int64_t panel) {
  const int64_t stride = 2 * from.cols;
  const int64_t rows = std::min(kPanelRows, from.rows - panel * kPanelRows);
  const uint8_t* first = from.data + panel * kPanelRows * stride;
  for (int64_t at = 0; at < stride; at += 64, to += 64 * kPanelRows) {
    const int64_t bytes = std::min<int64_t>(64, stride - at), pairs = bytes / 4;
    if (bytes < 64 || rows < kPanelRows) std::memset(to, 0, static_cast<size_t>(64 * kPanelRows));
    for (int64_t row = 0; row < rows; ++row) {
      const uint8_t* own = first + row * stride + at;
      for (int64_t pair = 0; pair < pairs; ++pair) std::memcpy(to + 64 * pair + 4 * row, own + 4 * pair, 4);
      if (bytes % 4 != 0) std::memcpy(to + 64 * pairs + 4 * row, own + 4 * pairs, 2);
    }
  }
}

// kBytes of a plain element.
template <int kBytes>
void pack_columns(uint8_t* to, const StoredRows& from, int64_t panel) {
  const int64_t stride = kBytes * from.cols;
  const int64_t rows = std::min(kPanelRows, from.rows - panel * kPanelRows);
  const uint8_t* first = from.data + panel * kPanelRows * stride;
  constexpr int64_t kBlock =
      64;  // columns: a cache line or more of each row, and what they become, stay in the first cache
  for (int64_t begin = 0; begin < from.cols; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, from.cols);
    if (rows < kPanelRows) {
      std::memset(to + begin * kPanelRows * kBytes, 0,
                  static_cast<size_t>((end - begin) * kPanelRows * kBytes));
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = begin; col < end; ++col)
        std::memcpy(to + (col * kPanelRows + row) * kBytes, first + row * stride + col * kBytes, kBytes);
  }
}

template <PanelLayout layout>
void pack_blocks(uint8_t* to, const StoredRows& from, int64_t panel) {
  with_panel_type(from.type, [&]<DType type> { pack<type, layout>(to, from, panel); });
}

}  // namespace

void pack_panel(uint8_t* to, const StoredRows& from, int64_t panel, PanelLayout layout) {
  switch (layout) {
    case PanelLayout::Quads:
      return pack_blocks<PanelLayout::Quads>(to, from, panel);
    case PanelLayout::Pairs:
      return pack_blocks<PanelLayout::Pairs>(to, from, panel);
    case PanelLayout::Words:
      return pack_words(to, from, panel);
    case PanelLayout::Columns:
      return from.type == DType::F32 ? pack_columns<4>(to, from, panel) : pack_columns<2>(to, from, panel);
  }
}

}  // namespace sluice::kernels::cpu
