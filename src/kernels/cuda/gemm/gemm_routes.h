// Which kernel multiplies tokens in bf16 with a quantized matrix, by how the matrix lies on the device and by how many
// tokens there are: the first row that has them, and whose kernel takes the shape.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace sluice::kernels::cuda {

enum class Stored { Blocks, Units };
// Gemv, Tile: gemv.cu, gemm_grouped_generic.cu. Few, Many: units_few.cuh, units_many.cuh. Panel: to bf16, then as bf16.
enum class Route { Gemv, Tile, Few, Many, Panel };

struct RouteRow {
  Stored stored;
  int64_t most;  // tokens
  Route route;
};
inline constexpr int64_t kAnyTokens = std::numeric_limits<int64_t>::max();
inline constexpr std::array<RouteRow, 6> kRoutes{{
    {Stored::Units, 8, Route::Few},
    {Stored::Units, 512, Route::Many},
    {Stored::Units, kAnyTokens, Route::Panel},
    {Stored::Blocks, 8, Route::Gemv},
    {Stored::Blocks, 63, Route::Tile},
    {Stored::Blocks, kAnyTokens, Route::Panel},
}};

// `fits(route)`: whether its kernel takes the shape. Panels take any.
template <class Fits>
constexpr Route route_of(Stored stored, int64_t tokens, Fits fits) {
  for (const RouteRow& row : kRoutes)
    if (row.stored == stored && tokens <= row.most && fits(row.route)) return row.route;
  return Route::Panel;
}

}  // namespace sluice::kernels::cuda
