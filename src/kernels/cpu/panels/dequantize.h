// Pieces of panels in rows (format.h) to matrix tiles: 16 rows of 32 bf16. A weight is scale * code in f32, rounded once to
// bf16; `W` rounds. Included by tiles_amx.cpp only.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/panels/codes.h"
#include "kernels/cpu/panels/format.h"
#include "kernels/cpu/panels/words_avx512_vnni.h"

namespace sluice::kernels::cpu {
namespace {

using TileF = PanelAvx512Vnni::F;

// Of the 16 rows, for each half of the columns where it has its own.
template <PanelFormat F>
struct RowScales {
  static constexpr bool kHalves = F.scales == PanelFormat::Scales::HalfScales;
  alignas(64) float scale[2][16];

  RowScales(const uint8_t* head, const uint8_t* piece) {
    using I = PanelAvx512Vnni;
    const PieceScales<I> s = scales_of<I, F>(head, piece, 0);
    for (int h = 0; h < (kHalves ? 2 : 1); ++h) {
      TileF value = s.scale;
      if constexpr (kHalves) value = I::mul(s.scale, s.half[h]);
      I::store(scale[h], value);
    }
    // Broadcasts from memory cost a load; GCC would make shuffles of registers of them, the port of which is the busiest.
    asm volatile("" : : "r"(scale) : "memory");
  }
  TileF apply(TileF codes, int row, int half) const {
    return _mm512_mul_ps(codes, _mm512_set1_ps(scale[half][row]));
  }
};

template <class W, PanelFormat F, int Row>
[[gnu::always_inline]] inline void byte_row(uint16_t* tile, const uint8_t* codes, const RowScales<F>& s) {
  constexpr int kSecond = RowScales<F>::kHalves ? 1 : 0;
  const TileF low = PanelAvx512Vnni::load_i8(codes + 32 * Row);
  const TileF high = PanelAvx512Vnni::load_i8(codes + 32 * Row + 16);
  _mm512_store_si512(tile + 32 * Row, W::rounded(s.apply(low, Row, 0), s.apply(high, Row, kSecond)));
}

// Piece `piece` of a panel to a tile.
template <class W, PanelFormat F>
void dequantize_piece(uint16_t* tile, const uint8_t* panel, int64_t piece) {
  constexpr int64_t kAhead = 4096;
  const uint8_t* head = panel + piece / F.pieces * F.super_bytes();
  const uint8_t* from = head + F.head_bytes() + piece % F.pieces * F.piece_bytes();
  for (int64_t ahead = 0; ahead < F.piece_bytes(); ahead += 64) __builtin_prefetch(from + kAhead + ahead);
  const RowScales<F> scales(head, from);
  const uint8_t* codes = from + F.scale_bytes();
  [&]<int... Row>(std::integer_sequence<int, Row...>) __attribute__((always_inline)) {
    (byte_row<W, F, Row>(tile, codes, scales), ...);
  }
  (std::make_integer_sequence<int, 16>());
}

}  // namespace
}  // namespace sluice::kernels::cpu
