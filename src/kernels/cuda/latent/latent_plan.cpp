#include "kernels/cuda/latent/latent_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "base/check.h"

namespace sluice::kernels::cuda {

namespace {

constexpr int kKeys = 64;      // keys that a block takes at a time
constexpr int kWorkCost = 2;   // what a work costs beside its keys, in such steps
constexpr int kMergeCost = 3;  // what merging costs, once

// Queries of a sequence that one cluster takes, over the whole of the context that they see.
struct Tile {
  int sequence, index;
  int32_t keys;
};
// A part of its context.
struct Piece {
  int tile;
  int32_t from, to;
};

int32_t divide_up(int64_t a, int64_t b) {
  return static_cast<int32_t>((a + b - 1) / b);
}

int32_t tiles_of(const LatentSequence& s, const LatentPlanLayout& layout) {
  return divide_up(int64_t{s.queries} * layout.heads, layout.rows());
}

// The longest context first.
std::vector<Tile> make_tiles(std::span<const LatentSequence> sequences, const LatentPlanLayout& layout) {
  std::vector<Tile> tiles;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const LatentSequence& s = sequences[i];
    const int32_t count = tiles_of(s, layout);
    for (int32_t t = 0; t < count; ++t) {
      const int32_t seen = divide_up(int64_t{t + 1} * layout.rows(), layout.heads);
      const int32_t keys = t + 1 == count ? s.length : std::min(s.length, s.length - s.queries + seen);
      tiles.push_back({static_cast<int>(i), t, keys});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.keys > b.keys; });
  return tiles;
}

int cost_of(const Piece& piece) {
  return kWorkCost + divide_up(piece.to - piece.from, kKeys);
}

std::vector<Piece> cut(const std::vector<Tile>& tiles, int32_t most) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tiles.size(); ++t)
    for (int32_t from = 0; from < tiles[t].keys; from += most)
      pieces.push_back({static_cast<int>(t), from, std::min(from + most, tiles[t].keys)});
  return pieces;
}

// Each piece goes to the cluster with the least to do; the longest time of a cluster.
int share_out(const std::vector<Piece>& pieces, int clusters, std::vector<int>* owners) {
  using Load = std::pair<int, int>;  // cost, cluster
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int i = 0; i < clusters; ++i) loads.emplace(0, i);
  int longest = 0;
  for (const Piece& piece : pieces) {
    auto [cost, cluster] = loads.top();
    loads.pop();
    cost += cost_of(piece);
    longest = std::max(longest, cost);
    loads.emplace(cost, cluster);
    if (owners != nullptr) owners->push_back(cluster);
  }
  return longest;
}

// Keys of a piece at most. No less than the mean of a cluster: there is room for as many pieces.
int32_t choose_cut(const std::vector<Tile>& tiles, int clusters) {
  int64_t total = 0;
  for (const Tile& tile : tiles) total += tile.keys;
  const int32_t mean = divide_up(divide_up(total, clusters), kKeys) * kKeys;
  const int32_t longest = tiles.empty() ? kKeys : std::max(kKeys, tiles.front().keys);
  int32_t best = longest;
  int least = share_out(cut(tiles, longest), clusters, nullptr);
  for (const int32_t most : {mean, mean + kKeys, mean + 2 * kKeys, mean * 3 / 2 / kKeys * kKeys, 2 * mean}) {
    if (most >= longest || most < mean) continue;
    const int time = share_out(cut(tiles, most), clusters, nullptr) + kMergeCost;
    if (time < least) least = time, best = most;
  }
  return best;
}

// Fills the arrays of a plan.
class Writer {
 public:
  Writer(std::span<const LatentSequence> sequences, const LatentPlanLayout& layout)
      : sequences_(sequences), layout_(layout), numbers_(static_cast<size_t>(layout.size()), 0) {}

  // Where the parts of a tile go that is split into so many, and who merges them.
  void merge(const Tile& tile, int parts, int32_t most) {
    const LatentSequence& s = sequences_[static_cast<size_t>(tile.sequence)];
    const int32_t rows = rows_of(tile);
    const int32_t first = s.query_begin * layout_.heads + tile.index * layout_.rows();
    const int32_t shares = std::max<int32_t>(tile.keys * layout_.cluster / most, 1);
    const int32_t step = divide_up(rows, shares);
    for (int32_t row = 0; row < rows; row += step, ++merges_) {
      SLUICE_CHECK_LT(merges_, layout_.blocks());
      put(layout_.merge_array(0) + merges_, first + row);
      put(layout_.merge_array(1) + merges_, first + std::min(row + step, rows));
      put(layout_.merge_array(2) + merges_, partial_ + row);
      put(layout_.merge_array(3) + merges_, partial_ + parts * rows);
      put(layout_.merge_array(4) + merges_, rows);
    }
    partial_ += parts * rows;
  }
  int32_t next_partial() const { return partial_; }
  int32_t rows_of(const Tile& tile) const {
    const int32_t all = sequences_[static_cast<size_t>(tile.sequence)].queries * layout_.heads;
    return std::min(layout_.rows(), all - tile.index * layout_.rows());
  }
  void work(int32_t at, const Tile& tile, const Piece& piece, int32_t partial) {
    SLUICE_CHECK_LT(at, layout_.works);
    const LatentSequence& s = sequences_[static_cast<size_t>(tile.sequence)];
    const int32_t values[] = {s.query_begin, s.row_begin, partial,
                              s.queries,     s.length,    tile.index * layout_.rows(),
                              piece.from,    piece.to};
    for (int i = 0; i < 8; ++i) put(layout_.work_array(i) + at, values[i]);
  }
  void put(int32_t at, int32_t value) { numbers_[static_cast<size_t>(at)] = value; }
  std::vector<int32_t> take() { return std::move(numbers_); }

 private:
  std::span<const LatentSequence> sequences_;
  const LatentPlanLayout& layout_;
  std::vector<int32_t> numbers_;
  int32_t merges_ = 0, partial_ = 0;
};

}  // namespace

LatentPlanLayout latent_layout(std::span<const LatentSequence> sequences, int heads, int processors) {
  int64_t rows = 0;
  LatentPlanLayout layout{1, processors, 0, heads, 0};
  for (const LatentSequence& s : sequences) {
    rows += int64_t{s.queries} * heads;
    if (s.queries > 1) layout.causal = 1;
  }
  if (rows > 64 * std::ssize(sequences)) layout.cluster = 2, layout.clusters = processors / 2;
  int64_t works = layout.clusters;
  for (const LatentSequence& s : sequences) works += tiles_of(s, layout);
  layout.works = static_cast<int32_t>(works);
  return layout;
}

std::vector<int32_t> plan_latent(std::span<const LatentSequence> sequences, const LatentPlanLayout& layout) {
  const std::vector<Tile> tiles = make_tiles(sequences, layout);
  const int32_t most = choose_cut(tiles, layout.clusters);
  const std::vector<Piece> pieces = cut(tiles, most);
  std::vector<int> owners;
  share_out(pieces, layout.clusters, &owners);

  Writer writer(sequences, layout);
  std::vector<int32_t> partial(pieces.size(), -1);
  for (size_t i = 0; i < pieces.size();) {
    const Tile& tile = tiles[static_cast<size_t>(pieces[i].tile)];
    const int32_t parts = divide_up(tile.keys, most);
    const int32_t first = writer.next_partial();
    if (parts > 1) writer.merge(tile, parts, most);
    for (int32_t part = 0; part < parts; ++part, ++i)
      if (parts > 1) partial[i] = first + part * writer.rows_of(tile);
  }
  std::vector<std::vector<size_t>> of_cluster(static_cast<size_t>(layout.clusters));
  for (size_t i = 0; i < pieces.size(); ++i) of_cluster[static_cast<size_t>(owners[i])].push_back(i);
  int32_t at = 0;
  for (int32_t cluster = 0; cluster < layout.clusters; ++cluster) {
    writer.put(layout.first_work() + cluster, at);
    for (const size_t i : of_cluster[static_cast<size_t>(cluster)])
      writer.work(at++, tiles[static_cast<size_t>(pieces[i].tile)], pieces[i], partial[i]);
  }
  writer.put(layout.first_work() + layout.clusters, at);
  return writer.take();
}

}  // namespace sluice::kernels::cuda
