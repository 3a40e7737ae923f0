// Attention over paged keys and values: q [n, heads, key_dim], out [n, heads, value_dim].
//
// A unit of work is one sequence, one kv head and up to 32 query rows, or more where the level asks for it (a row is one token's
// query head; the heads that share the kv head lie side by side). A few rows, as in decoding, go with all kv heads: rows of
// keys of all heads follow each other, and what the processor fetches beside one head's is that of the next. Keys are taken in
// chunks that begin at multiples of 512 positions; each chunk's softmax and weighted sum are blended into the row's result in
// order. A row's arithmetic thus depends on its own position alone: how a prompt was cut into steps, which sequences run
// along, and how many threads there are change no bit. Units, or where they are few chunks, are shared out over the threads.
//
// Bytes moved: every key and value once per unit. On a Neoverse V1 the conversion of f16 to f32 is what limits few rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host.h"
#include "kernels/rotation.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kChunk = 512;
constexpr int64_t kScoreStride =
    kChunk + 16;                  // rows that follow each other lie in other lines of the first cache
constexpr int64_t kGroup = 32;    // of keys, as KvRows counts them
constexpr int64_t kFewRows = 16;  // go with all kv heads
constexpr int64_t kFetchedBytes = 1 << 19;  // of keys and values, before few rows read them

struct Unit {
  int sequence;
  int64_t kv_head;        // the first one
  int64_t kv_heads;       // 1, or all
  int64_t first_row;      // token of the step * heads per kv head + head
  int64_t rows;           // of each kv head
  int64_t last_position;  // the largest that one of its rows sees
};

// The result of one chunk, or of several: softmax parts and weighted sums of the rows of each kv head.
struct Part {
  Part(int64_t slots, int64_t value_dim)
      : softmax(static_cast<size_t>(slots)), sums(static_cast<size_t>(slots * value_dim)) {}
  void clear() {
    std::fill(softmax.begin(), softmax.end(), SoftmaxPart{});
    std::fill(sums.begin(), sums.end(), 0.0f);
  }

  std::vector<SoftmaxPart> softmax;  // [kv heads, rows]; total 0: the row has seen no key
  std::vector<float> sums;           // [kv heads, rows, value_dim]
};

struct Scratch {
  Scratch(int64_t most_rows, int64_t most_slots, int64_t value_dim)
      : scores(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(most_rows * kScoreStride))),
        queries(static_cast<size_t>(most_rows)),
        part(most_slots, value_dim),
        whole(most_slots, value_dim) {}

  std::unique_ptr<float[]> scores;  // [rows, kScoreStride]
  std::vector<const float*> queries;
  std::array<const uint8_t*, kChunk> keys;
  std::array<const uint8_t*, kChunk> values;
  std::array<float, kChunk> key_scales;
  std::array<float, kChunk> value_scales;
  Part part;
  Part whole;
};

// Some keys of one kv head of a unit, whose addresses scratch has.
struct HeadKeys {
  int64_t kv_head;
  int64_t begin, end;
};

float log_sum(const SoftmaxPart& part) {
  return part.total == 0 ? -std::numeric_limits<float>::infinity() : part.largest + std::log(part.total);
}

class Attention {
 public:
  Attention(const KernelTable& kernels, const PartialAttended& to, TensorView q, const PagedKv& kv,
            const RaggedBatch& batch, const AttentionShape& shape, TensorView chosen = {}, int64_t size = 1)
      : kernels_(kernels),
        out_(to.out),
        lse_(to.lse),
        q_(q),
        kv_(kv),
        batch_(batch),
        shape_(shape),
        chosen_(chosen),
        size_(size),
        value_rotation_(rotation_of(kv).value),
        group_(shape.heads / shape.kv_heads) {}

  std::vector<Unit> units(int threads) const;
  void run(ThreadPool& pool) const;

 private:
  int64_t position_of(int64_t row) const { return batch_.positions[static_cast<size_t>(row / group_)]; }
  // Keys are counted as positions, or as places in the token's chosen blocks.
  int64_t last_key(int64_t row) const {
    const int64_t token = row / group_;
    return chosen_.empty() ? batch_.last_seen(token) : chosen_count(batch_, token, chosen_.dim(2), size_) - 1;
  }
  int64_t first_key(int64_t position) const {
    if (shape_.window == 0) return 0;
    if (shape_.chunked) return position - position % shape_.window;
    return std::max<int64_t>(0, position - shape_.window + 1);
  }
  int64_t head_of_row(int64_t kv_head, int64_t row) const { return kv_head * group_ + row % group_; }
  bool all_heads_at_once(int threads) const;
  Scratch make_scratch(const std::vector<Unit>& units) const;
  void gather(const Unit& unit, const HeadKeys& keys, Scratch& scratch) const;
  void weigh(const Unit& unit, const HeadKeys& keys, Scratch& scratch, SoftmaxPart* softmax) const;
  void fetch(const TensorView& cache, const uint8_t* const* rows, int64_t count, int64_t heads) const;
  void run_head(const Unit& unit, const HeadKeys& keys, Scratch& scratch, Part& part) const;
  void run_chunk(const Unit& unit, int64_t chunk, Scratch& scratch, Part& part) const;
  void blend(const Unit& unit, Part& whole, const Part& part) const;
  void finish(const Unit& unit, const Part& whole) const;
  void run_whole(const Unit& unit, Scratch& scratch) const;
  void run_split(const std::vector<Unit>& units, ThreadPool& pool) const;

  const KernelTable& kernels_;
  TensorView out_;
  TensorView lse_;  // empty: not wanted
  TensorView q_;
  const PagedKv& kv_;
  const RaggedBatch& batch_;
  const AttentionShape& shape_;
  TensorView chosen_;  // [n, choices, most] blocks of size_ positions; empty: all positions
  int64_t size_;
  int64_t value_rotation_;
  int64_t group_;
};

// Whether few rows go with all kv heads: not where that leaves threads without work.
bool Attention::all_heads_at_once(int threads) const {
  int64_t pieces = 0;
  for (size_t s = 0; s < static_cast<size_t>(batch_.sequences()); ++s) {
    const int64_t begin = batch_.query_begin[s], end = batch_.query_begin[s + 1];
    if (begin < end) pieces += 1 + std::max<int64_t>(0, last_key(end * group_ - 1)) / kChunk;
  }
  return pieces >= 2 * threads;
}

std::vector<Unit> Attention::units(int threads) const {
  const bool all_heads = all_heads_at_once(threads);
  const bool many = batch_.tokens() * shape_.heads >= 4 * threads * kernels_.attention_rows;
  const int64_t most = many ? kernels_.attention_rows : std::min<int64_t>(32, kernels_.attention_rows);
  std::vector<Unit> units;
  for (int sequence = 0; sequence < batch_.sequences(); ++sequence) {
    const auto s = static_cast<size_t>(sequence);
    const int64_t begin = batch_.query_begin[s] * group_;
    const int64_t end = batch_.query_begin[s + 1] * group_;
    for (int64_t row = begin, rows = 0; row < end; row += rows) {
      // Chosen keys are those of one token.
      rows = std::min(most, (chosen_.empty() ? end : row - row % group_ + group_) - row);
      int64_t last = 0;
      for (int64_t r = row; r < row + rows; ++r) last = std::max(last, last_key(r));
      const int64_t heads = all_heads && rows <= kFewRows ? shape_.kv_heads : 1;
      for (int64_t head = 0; head < shape_.kv_heads; head += heads)
        units.push_back({sequence, head, heads, row, rows, last});
    }
  }
  return units;
}

int64_t most_slots(const std::vector<Unit>& units) {
  int64_t slots = 0;
  for (const Unit& unit : units) slots = std::max(slots, unit.rows * unit.kv_heads);
  return slots;
}

Scratch Attention::make_scratch(const std::vector<Unit>& units) const {
  int64_t rows = 0;
  for (const Unit& unit : units) rows = std::max(rows, unit.rows);
  return {rows, most_slots(units), shape_.value_dim};
}

// Addresses (and I8 scales) of the keys and values.
void Attention::gather(const Unit& unit, const HeadKeys& keys, Scratch& scratch) const {
  const int64_t block_size = kv_.k.dim(1);
  const auto& table = batch_.tables[static_cast<size_t>(kv_.table)];
  const auto fill = [&](const TensorView& cache, const TensorView& scales, int64_t block, int64_t slot,
                        int64_t count, const uint8_t** rows, float* row_scales) {
    const int64_t bytes = info(cache.dtype).block_bytes;
    const int64_t first = block * cache.stride[0] + slot * cache.stride[1] + keys.kv_head * cache.stride[2];
    const uint8_t* row = static_cast<const uint8_t*>(cache.data) + first * bytes;
    for (int64_t i = 0; i < count; ++i, row += cache.stride[1] * bytes) rows[i] = row;
    if (cache.dtype != DType::I8) return;
    for (int64_t i = 0; i < count; ++i) row_scales[i] = scales.at<float>(block, slot + i)[keys.kv_head];
  };
  const int32_t* chosen = nullptr;
  if (!chosen_.empty())
    chosen = chosen_.at<int32_t>(unit.first_row / group_, keys.kv_head * chosen_.dim(1) / shape_.kv_heads);
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t position = chosen == nullptr ? key : chosen[key / size_] * size_ + key % size_;
    const int64_t block = kv_block(table, unit.sequence, position / block_size);
    const int64_t slot = position % block_size;
    const int64_t together = chosen == nullptr ? keys.end : size_ - key % size_;  // positions side by side
    const int64_t count = std::min({keys.end - key, block_size - slot, together});
    const auto i = static_cast<size_t>(key - keys.begin);
    fill(kv_.k, kv_.k_scales, block, slot, count, &scratch.keys[i], &scratch.key_scales[i]);
    fill(kv_.v, kv_.v_scales, block, slot, count, &scratch.values[i], &scratch.value_scales[i]);
    key += count;
  }
}

// Raw scores to softmax weights; zero where a row does not see a key.
void Attention::weigh(const Unit& unit, const HeadKeys& keys, Scratch& scratch, SoftmaxPart* softmax) const {
  const int64_t begin = keys.begin, end = keys.end;
  for (int64_t r = 0; r < unit.rows; ++r) {
    const int64_t row = unit.first_row + r;
    const int64_t position = position_of(row);
    const int64_t from = std::clamp(first_key(position), begin, end);
    const int64_t to = std::clamp(last_key(row) + 1, from, end);
    float* scores = scratch.scores.get() + r * kScoreStride;
    std::fill(scores, scores + (from - begin), 0.0f);
    std::fill(scores + (to - begin), scores + (end - begin), 0.0f);
    const float slope =
        shape_.alibi.empty() ? 0.0f : shape_.alibi.at<float>()[head_of_row(keys.kv_head, row)];
    const ScoreRule rule{shape_.scale, shape_.softcap, slope};
    softmax[r] = from == to ? SoftmaxPart{}
                            : kernels_.softmax(scores + (from - begin), to - from, rule, from - position);
  }
}

void Attention::run_head(const Unit& unit, const HeadKeys& keys, Scratch& scratch, Part& part) const {
  for (int64_t r = 0; r < unit.rows; ++r) {
    const int64_t row = unit.first_row + r;
    scratch.queries[static_cast<size_t>(r)] = q_.at<float>(row / group_, head_of_row(keys.kv_head, row));
  }
  const bool key_scales = kv_.k.dtype == DType::I8;
  const bool value_scales = kv_.v.dtype == DType::I8;
  const int64_t count = keys.end - keys.begin, first_slot = (keys.kv_head - unit.kv_head) * unit.rows;
  kernels_.scores(scratch.scores.get(), kScoreStride, scratch.queries.data(), unit.rows,
                  {kv_.k.dtype, scratch.keys.data(), key_scales ? scratch.key_scales.data() : nullptr, count,
                   shape_.key_dim});
  weigh(unit, keys, scratch, part.softmax.data() + first_slot);
  kernels_.weighted_sum(
      {part.sums.data() + first_slot * shape_.value_dim,
       scratch.scores.get(),
       kScoreStride,
       unit.rows,
       {kv_.v.dtype, scratch.values.data(), value_scales ? scratch.value_scales.data() : nullptr, count,
        shape_.value_dim, keys.begin % kGroup}});
}

// Brings rows of some kv heads into the second cache, in the order in which they lie in memory.
void Attention::fetch(const TensorView& cache, const uint8_t* const* rows, int64_t count,
                      int64_t heads) const {
  const int64_t bytes = heads * cache.stride[2] * info(cache.dtype).block_bytes;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(rows[i] + byte, 0, 2);
  }
}

void Attention::run_chunk(const Unit& unit, int64_t chunk, Scratch& scratch, Part& part) const {
  int64_t begin = (chunk + 1) * kChunk;
  for (int64_t r = 0; r < unit.rows; ++r) begin = std::min(begin, first_key(position_of(unit.first_row + r)));
  begin = std::max(begin, chunk * kChunk);
  const int64_t end = std::min((chunk + 1) * kChunk, unit.last_position + 1);
  if (begin >= end) return std::fill(part.softmax.begin(), part.softmax.end(), SoftmaxPart{});
  const int64_t head_bytes = kChunk * (kv_.k.stride[2] + kv_.v.stride[2]) * info(kv_.k.dtype).block_bytes;
  const int64_t at_once = std::clamp<int64_t>(kFetchedBytes / head_bytes, 1, unit.kv_heads);
  for (int64_t head = 0; head < unit.kv_heads; ++head) {
    const HeadKeys keys{unit.kv_head + head, begin, end};
    gather(unit, keys, scratch);
    if (kernels_.attention_fetches && unit.rows <= kFewRows && head % at_once == 0) {
      const int64_t heads = std::min(at_once, unit.kv_heads - head);
      fetch(kv_.k, scratch.keys.data(), end - begin, heads);
      fetch(kv_.v, scratch.values.data(), end - begin, heads);
    }
    run_head(unit, keys, scratch, part);
  }
}

void Attention::blend(const Unit& unit, Part& whole, const Part& part) const {
  for (int64_t slot = 0; slot < unit.kv_heads * unit.rows; ++slot) {
    SoftmaxPart& sum = whole.softmax[static_cast<size_t>(slot)];
    const SoftmaxPart& next = part.softmax[static_cast<size_t>(slot)];
    if (next.total == 0) continue;
    const float largest = std::max(sum.largest, next.largest);
    const float kept = sum.total == 0 ? 0.0f : std::exp(sum.largest - largest);
    const float added = sum.total == 0 ? 1.0f : std::exp(next.largest - largest);
    kernels_.blend(whole.sums.data() + slot * shape_.value_dim, kept,
                   part.sums.data() + slot * shape_.value_dim, added, shape_.value_dim);
    sum = {sum.total == 0 ? next.largest : largest, sum.total * kept + next.total * added};
  }
}

void Attention::finish(const Unit& unit, const Part& whole) const {
  for (int64_t slot = 0; slot < unit.kv_heads * unit.rows; ++slot) {
    const int64_t row = unit.first_row + slot % unit.rows;
    const int64_t head = head_of_row(unit.kv_head + slot / unit.rows, row);
    SoftmaxPart sum = whole.softmax[static_cast<size_t>(slot)];
    float kept = 1.0f;
    if (!shape_.sinks.empty()) {
      const float sink = shape_.sinks.at<float>()[head];
      const float largest = std::max(sum.largest, sink);
      kept = std::exp(sum.largest - largest);
      sum = {largest, sum.total * kept + std::exp(sink - largest)};
    }
    if (!lse_.empty()) lse_.at<float>(row / group_)[head] = log_sum(sum);
    const float factor = sum.total == 0 ? 0.0f : kept / sum.total;
    const float* from = whole.sums.data() + slot * shape_.value_dim;
    float* to = out_.at<float>(row / group_, head);
    for (int64_t i = 0; i < shape_.value_dim; ++i) to[i] = from[i] * factor;
    if (value_rotation_ > 1) kernels_.rotate(to, to, shape_.value_dim, value_rotation_);
  }
}

void Attention::run_whole(const Unit& unit, Scratch& scratch) const {
  scratch.whole.clear();
  for (int64_t chunk = 0; chunk <= unit.last_position / kChunk; ++chunk) {
    run_chunk(unit, chunk, scratch, scratch.part);
    blend(unit, scratch.whole, scratch.part);
  }
  finish(unit, scratch.whole);
}

void Attention::run_split(const std::vector<Unit>& units, ThreadPool& pool) const {
  struct Piece {
    size_t unit;
    int64_t chunk;
  };
  std::vector<Piece> pieces;
  for (size_t u = 0; u < units.size(); ++u) {
    for (int64_t chunk = 0; chunk <= units[u].last_position / kChunk; ++chunk) pieces.push_back({u, chunk});
  }
  std::vector<Part> parts;
  parts.reserve(pieces.size());
  for (const Piece& piece : pieces)
    parts.emplace_back(units[piece.unit].kv_heads * units[piece.unit].rows, shape_.value_dim);
  pool.for_ranges(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    Scratch scratch = make_scratch(units);
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      run_chunk(units[piece.unit], piece.chunk, scratch, parts[static_cast<size_t>(i)]);
    }
  });
  Part whole(most_slots(units), shape_.value_dim);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].chunk == 0) whole.clear();
    const Unit& unit = units[pieces[i].unit];
    blend(unit, whole, parts[i]);
    if (i + 1 == pieces.size() || pieces[i + 1].unit != pieces[i].unit) finish(unit, whole);
  }
}

void Attention::run(ThreadPool& pool) const {
  const std::vector<Unit> all = units(pool.threads());
  const bool few = static_cast<int64_t>(all.size()) < 2 * pool.threads();
  const bool long_context =
      std::any_of(all.begin(), all.end(), [](const Unit& unit) { return unit.last_position >= kChunk; });
  if (few && long_context && pool.threads() > 1) return run_split(all, pool);
  pool.for_ranges(static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t end) {
    Scratch scratch = make_scratch(all);
    for (int64_t i = begin; i < end; ++i) run_whole(all[static_cast<size_t>(i)], scratch);
  });
}

}  // namespace

void CpuBackend::attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
                        const AttentionShape& shape) {
  attend_part({out, {}}, q, kv, batch, shape);
}

void CpuBackend::attend_part(const PartialAttended& to, TensorView q, const PagedKv& kv,
                             const RaggedBatch& batch, const AttentionShape& shape) {
  SLUICE_CHECK(is_kv(kv.k.dtype) && is_kv(kv.v.dtype));
  SLUICE_CHECK_EQ(shape.heads % shape.kv_heads, 0);
  SLUICE_CHECK_EQ(q.dim(0), batch.tokens());
  if (const int64_t block = rotation_of(kv).key; block > 1) q = rotated_queries(q, block);
  Attention(kernels_, to, q, kv, batch, shape).run(pool_);
}

void CpuBackend::attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                               const AttentionShape& shape) {
  attend_chosen_part({out, {}}, q, keys, batch, shape);
}

void CpuBackend::attend_chosen_part(const PartialAttended& to, TensorView q, const ChosenKeys& keys,
                                    const RaggedBatch& batch, const AttentionShape& shape) {
  const PagedKv& kv = keys.kv;
  SLUICE_CHECK(is_kv(kv.k.dtype) && is_kv(kv.v.dtype));
  SLUICE_CHECK(shape.window == 0 && shape.alibi.empty());
  SLUICE_CHECK_EQ(shape.heads % shape.kv_heads, 0);
  SLUICE_CHECK_EQ(shape.kv_heads % keys.blocks.dim(1), 0);
  if (const int64_t block = rotation_of(kv).key; block > 1) q = rotated_queries(q, block);
  Attention(kernels_, to, q, kv, batch, shape, keys.blocks, keys.size).run(pool_);
}

TensorView CpuBackend::rotated_queries(TensorView q, int64_t block) {
  const int64_t heads = q.dim(1), width = q.dim(2);
  rotated_.resize(static_cast<size_t>(q.dim(0) * heads * width));
  const TensorView rotated =
      TensorView::contiguous(rotated_.data(), DType::F32, {q.dim(0), heads, width}, q.device);
  for_rows(q.dim(0), heads * width, [&](int64_t token) {
    for (int64_t head = 0; head < heads; ++head)
      kernels_.rotate(rotated.at<float>(token, head), q.at<float>(token, head), width, block);
  });
  return rotated;
}

}  // namespace sluice::kernels::cpu
