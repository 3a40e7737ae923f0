// Attention with AMX tiles of bf16, and the same over a model of the tile instructions. What else a level offers is that of
// AVX-512.
#include "kernels/cpu/attention/tile_softmax.h"
#include "kernels/cpu/attention/tile_sums.h"
#include "kernels/cpu/attention/vector_rows.h"
#include "kernels/cpu/simd/levels.h"

namespace sluice::kernels::cpu {

namespace {

// Calls run<type>() where tiles multiply rows of this type and width, else others(): int8 has kernels of its own.
template <class W, class Run, class Others>
void with_tiled_type(const KvRows& rows, const Run& run, const Others& others) {
  if (rows.width > kWidestTiled) return others();
  switch (rows.type) {
    case DType::F32:
      return run.template operator()<TiledF32<W>>();
    case DType::F16:
      return run.template operator()<TiledF16<W>>();
    case DType::BF16:
      return run.template operator()<TiledBf16<W>>();
    default:
      return others();
  }
}

// Few rows by vectors, up to a tile's with four tiles of keys at a time, more with two by two.
// REQUIRES: keys.width <= kWidestTiled
template <class Tiles, class T, class W>
void tile_scores(const ScoreWork& work) {
  for (int64_t first = 0; first < work.count; first += kTiledQueries) {
    const int64_t count = work.count - first < kTiledQueries ? work.count - first : kTiledQueries;
    const ScoreWork some{work.out + first * work.stride, work.stride, work.queries + first, count, work.keys};
    if (count <= kVectorRows) {
      vector_scores<T, W>(some);
    } else if (count <= 16) {
      few_scores<Tiles, T, W>(some);
    } else {
      many_scores<Tiles, T, W>(some);
    }
  }
}

// REQUIRES: sum.values.before + sum.values.count <= kMostTiledKeys; sum.values.width <= kWidestTiled
template <class Tiles, class T, class W>
void tile_sums(const WeightedSum& sum) {
  const int64_t steps = (sum.values.before + sum.values.count + 31) / 32;
  for (int64_t first = 0; first < sum.queries; first += kTiledQueries) {
    WeightedSum some = sum;
    some.out += first * sum.values.width;
    some.weights += first * sum.weight_stride;
    some.queries = sum.queries - first < kTiledQueries ? sum.queries - first : kTiledQueries;
    if (some.queries <= kVectorRows) {
      vector_sums<T, W>(some, steps);
    } else if (some.queries <= 16) {
      few_sums<Tiles, T, W>(some, steps);
    } else {
      many_sums<Tiles, T, W>(some, steps);
    }
  }
}

template <class Tiles, class W, const KernelTable& (*Others)()>
void scores_by_tiles(float* out, int64_t stride, const float* const* queries, int64_t count,
                     const KvRows& keys) {
  with_tiled_type<W>(
      keys,
      [&]<class T>() {
        tile_scores<Tiles, T, W>({out, stride, queries, count, keys});
      },
      [&] { Others().scores(out, stride, queries, count, keys); });
}

template <class Tiles, class W, const KernelTable& (*Others)()>
void weighted_sum_by_tiles(const WeightedSum& sum) {
  with_tiled_type<W>(
      sum.values, [&]<class T>() { tile_sums<Tiles, T, W>(sum); }, [&] { Others().weighted_sum(sum); });
}

template <class Tiles, class W, const KernelTable& (*Others)()>
KernelTable with_tiles() {
  KernelTable table = Others();
  table.attention_rows = kTiledQueries;
  table.scores = scores_by_tiles<Tiles, W, Others>;
  table.softmax = softmax_by_powers;
  table.weighted_sum = weighted_sum_by_tiles<Tiles, W, Others>;
  return table;
}

}  // namespace

const KernelTable& amx_kernels() {
  static const KernelTable kTable = with_tiles<AmxTiles, AmxWords, avx512_bf16_kernels>();
  return kTable;
}

const KernelTable& amx_model_kernels() {
  static const KernelTable kTable = with_tiles<ModelTiles, ModelWords, avx512_vnni_kernels>();
  return kTable;
}

}  // namespace sluice::kernels::cpu
