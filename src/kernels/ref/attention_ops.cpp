// KV writes and attention of the reference: for each token and head, all scores, their softmax, the weighted
// sum.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/host.h"
#include "kernels/ref/ref_backend.h"
#include "kernels/rotation.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace sluice::kernels {

namespace {

struct Slot {
  int64_t block;
  int64_t offset;
};

Slot slot_of(const PagedKv& kv, const RaggedBatch& batch, int sequence, int64_t position) {
  const int64_t block_size = kv.k.dim(1);
  const auto& table = batch.tables[static_cast<size_t>(kv.table)];
  return {kv_block(table, sequence, position / block_size), position % block_size};
}

// Multiplies each `block` columns by the orthonormal Hadamard matrix of that size.
void rotate(std::span<float> row, int64_t block) {
  const auto size = static_cast<size_t>(block);
  for (size_t half = 1; half < size; half *= 2) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i % (2 * half) >= half) continue;
      const float a = row[i], b = row[i + half];
      row[i] = a + b;
      row[i + half] = a - b;
    }
  }
  const float factor = 1.0f / std::sqrt(static_cast<float>(block));
  for (float& x : row) x *= factor;
}

std::vector<float> rotated(const float* row, int64_t width, int64_t block) {
  std::vector<float> out(row, row + width);
  rotate(out, block);
  return out;
}

// One row of one head to the cache's type; the scale is stored where the type is I8.
void store(const TensorView& cache, const TensorView& scales, Slot slot, int64_t head, const float* row) {
  const int64_t width = cache.dim(3);
  switch (cache.dtype) {
    case DType::F32:
      std::copy_n(row, width, cache.at<float>(slot.block, slot.offset, head));
      return;
    case DType::F16:
      std::transform(row, row + width, cache.at<uint16_t>(slot.block, slot.offset, head), f32_to_f16);
      return;
    case DType::BF16:
      std::transform(row, row + width, cache.at<uint16_t>(slot.block, slot.offset, head), f32_to_bf16);
      return;
    case DType::F8_E4M3:
      std::transform(row, row + width, cache.at<uint8_t>(slot.block, slot.offset, head), f32_to_e4m3);
      return;
    case DType::I8:
      break;
    default:
      SLUICE_CHECK(!"KV caches are F32, F16, BF16, F8_E4M3 or I8");
  }
  float largest = 0;
  for (int64_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(row[i]));
  if (!std::all_of(row, row + width, [](float x) { return std::isfinite(x); })) {
    // No integer stands for it: what reads the row must not be finite either.
    scales.at<float>(slot.block, slot.offset)[head] = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(cache.at<int8_t>(slot.block, slot.offset, head), width, int8_t{1});
    return;
  }
  const float scale = largest / 127.0f;
  const float inverse = scale == 0 ? 0.0f : 127.0f / largest;
  scales.at<float>(slot.block, slot.offset)[head] = scale;
  int8_t* to = cache.at<int8_t>(slot.block, slot.offset, head);
  for (int64_t i = 0; i < width; ++i) to[i] = static_cast<int8_t>(std::nearbyint(row[i] * inverse));
}

void load(const TensorView& cache, const TensorView& scales, Slot slot, int64_t head,
          std::vector<float>& row) {
  const auto width = static_cast<int64_t>(row.size());
  if (cache.dtype != DType::I8) {
    const auto element = info(cache.dtype).block_bytes;
    const int64_t offset =
        slot.block * cache.stride[0] + slot.offset * cache.stride[1] + head * cache.stride[2];
    dequantize_row(cache.dtype, static_cast<const std::byte*>(cache.data) + offset * element, row.data(),
                   width);
    return;
  }
  const float scale = scales.at<float>(slot.block, slot.offset)[head];
  const int8_t* from = cache.at<int8_t>(slot.block, slot.offset, head);
  for (int64_t i = 0; i < width; ++i) row[static_cast<size_t>(i)] = static_cast<float>(from[i]) * scale;
}

struct Query {
  const float* row;
  int sequence;
  int64_t head;
  int64_t position;
  std::span<const int32_t> seen;  // positions
};

double score_of(const Query& query, const std::vector<float>& key, int64_t position,
                const AttentionShape& shape) {
  double sum = 0;
  for (size_t i = 0; i < key.size(); ++i) sum += static_cast<double>(query.row[i]) * key[i];
  double score = sum * shape.scale;
  if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
  if (!shape.alibi.empty()) {
    score += shape.alibi.at<float>()[query.head] * static_cast<double>(position - query.position);
  }
  return score;
}

}  // namespace

void RefBackend::write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch& batch) {
  const KvRotation rotation = rotation_of(kv);
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<size_t>(sequence);
    for (int64_t i = batch.query_begin[s]; i < batch.query_begin[s + 1]; ++i) {
      const Slot slot = slot_of(kv, batch, sequence, batch.positions[static_cast<size_t>(i)]);
      for (int64_t head = 0; head < k.dim(1); ++head) {
        store(kv.k, kv.k_scales, slot, head, rotated(k.at<float>(i, head), k.dim(2), rotation.key).data());
        if (v.empty()) continue;
        store(kv.v, kv.v_scales, slot, head, rotated(v.at<float>(i, head), v.dim(2), rotation.value).data());
      }
    }
  }
}

namespace {

int64_t first_key(const AttentionShape& shape, int64_t position) {
  if (shape.window == 0) return 0;
  if (shape.chunked) return position - position % shape.window;
  return std::max<int64_t>(0, position - shape.window + 1);
}

// Returns the log of the sum of exp of the scores.
double attend_one(float* out, const Query& query, const PagedKv& kv, const RaggedBatch& batch,
                  const AttentionShape& shape) {
  const int64_t kv_head = query.head / (shape.heads / shape.kv_heads);
  std::vector<float> key(static_cast<size_t>(shape.key_dim));
  std::vector<float> value(static_cast<size_t>(shape.value_dim));
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity();
  if (!shape.sinks.empty()) largest = shape.sinks.at<float>()[query.head];
  for (const int64_t position : query.seen) {
    load(kv.k, kv.k_scales, slot_of(kv, batch, query.sequence, position), kv_head, key);
    scores.push_back(score_of(query, key, position, shape));
    largest = std::max(largest, scores.back());
  }
  std::vector<double> sums(static_cast<size_t>(shape.value_dim));
  double total = shape.sinks.empty() ? 0.0 : std::exp(shape.sinks.at<float>()[query.head] - largest);
  for (size_t place = 0; place < scores.size(); ++place) {
    const double weight = std::exp(scores[place] - largest);
    total += weight;
    load(kv.v, kv.v_scales, slot_of(kv, batch, query.sequence, query.seen[place]), kv_head, value);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * value[i];
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = total == 0 ? 0.0f : static_cast<float>(sums[i] / total);
  rotate({out, sums.size()}, rotation_of(kv).value);
  return largest + std::log(total);
}

struct TokenPlace {
  int sequence;
  int64_t token;
};

// The heads of one token over the positions that it sees.
struct TokenAttention {
  TensorView q;
  const PagedKv& kv;
  const RaggedBatch& batch;
  const AttentionShape& shape;

  void run(const PartialAttended& to, const TokenPlace& at, std::span<const int32_t> seen) const {
    run(to, at, seen, {0, shape.heads});
  }
  // Heads [range.first, range.second).
  void run(const PartialAttended& to, const TokenPlace& at, std::span<const int32_t> seen,
           std::pair<int64_t, int64_t> range) const {
    const int64_t position = batch.positions[static_cast<size_t>(at.token)];
    for (int64_t head = range.first; head < range.second; ++head) {
      const std::vector<float> query =
          rotated(q.at<float>(at.token, head), shape.key_dim, rotation_of(kv).key);
      const double lse = attend_one(to.out.at<float>(at.token, head),
                                    {query.data(), at.sequence, head, position, seen}, kv, batch, shape);
      if (!to.lse.empty()) to.lse.at<float>(at.token)[head] = static_cast<float>(lse);
    }
  }
};

// Calls one(sequence, token) for each token of the step.
template <class One>
void for_tokens(const RaggedBatch& batch, const One& one) {
  for (int sequence = 0; sequence < batch.sequences(); ++sequence) {
    const auto s = static_cast<size_t>(sequence);
    for (int64_t i = batch.query_begin[s]; i < batch.query_begin[s + 1]; ++i) one(TokenPlace{sequence, i});
  }
}

}  // namespace

void RefBackend::attend(TensorView out, TensorView q, const PagedKv& kv, const RaggedBatch& batch,
                        const AttentionShape& shape) {
  attend_part({out, {}}, q, kv, batch, shape);
}

void RefBackend::attend_part(const PartialAttended& to, TensorView q, const PagedKv& kv,
                             const RaggedBatch& batch, const AttentionShape& shape) {
  for_tokens(batch, [&](const TokenPlace& at) {
    const int64_t first = first_key(shape, batch.positions[static_cast<size_t>(at.token)]);
    std::vector<int32_t> seen(
        static_cast<size_t>(std::max<int64_t>(0, batch.last_seen(at.token) + 1 - first)));
    std::iota(seen.begin(), seen.end(), static_cast<int32_t>(first));
    TokenAttention{q, kv, batch, shape}.run(to, at, seen);
  });
}

void RefBackend::attend_chosen(TensorView out, TensorView q, const ChosenKeys& keys, const RaggedBatch& batch,
                               const AttentionShape& shape) {
  attend_chosen_part({out, {}}, q, keys, batch, shape);
}

void RefBackend::attend_chosen_part(const PartialAttended& to, TensorView q, const ChosenKeys& keys,
                                    const RaggedBatch& batch, const AttentionShape& shape) {
  const int64_t choices = keys.blocks.dim(1), heads = shape.heads / choices;
  for_tokens(batch, [&](const TokenPlace& at) {
    std::vector<int32_t> seen(
        static_cast<size_t>(chosen_count(batch, at.token, keys.blocks.dim(2), keys.size)));
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int32_t* blocks = keys.blocks.at<int32_t>(at.token, choice);
      for (size_t i = 0; i < seen.size(); ++i) {
        const auto place = static_cast<int32_t>(i);
        seen[i] = blocks[place / keys.size] * keys.size + place % keys.size;
      }
      TokenAttention{q, keys.kv, batch, shape}.run(to, at, seen, {choice * heads, (choice + 1) * heads});
    }
  });
}

namespace {

// Products of the queries q[n, heads, dim] with index keys: each(position, head, product) for each of a token.
struct IndexProducts {
  TensorView q;
  const PagedKv& keys;
  const RaggedBatch& batch;

  template <class Each>
  void run(const TokenPlace& at, const Each& each) const {
    std::vector<float> key(static_cast<size_t>(q.dim(2)));
    for (int64_t position = 0; position <= batch.last_seen(at.token); ++position) {
      load(keys.k, keys.k_scales, slot_of(keys, batch, at.sequence, position), 0, key);
      rotate(key, rotation_of(keys).key);
      for (int64_t head = 0; head < q.dim(1); ++head) {
        const float* query = q.at<float>(at.token, head);
        double product = 0;
        for (size_t i = 0; i < key.size(); ++i) product += static_cast<double>(query[i]) * key[i];
        each(static_cast<size_t>(position), static_cast<size_t>(head), product);
      }
    }
  }
};

}  // namespace

void RefBackend::choose_positions(TensorView chosen, const IndexQueries& queries, const PagedKv& keys,
                                  const RaggedBatch& batch) {
  for_tokens(batch, [&](const TokenPlace& at) {
    std::vector<double> sums(static_cast<size_t>(batch.last_seen(at.token) + 1));
    const float* weights = queries.weights.at<float>(at.token);
    IndexProducts{queries.q, keys, batch}.run(at, [&](size_t position, size_t head, double product) {
      sums[position] += weights[head] * std::max(0.0, product);
    });
    const std::vector<float> scores(sums.begin(), sums.end());
    const auto count = static_cast<size_t>(chosen_blocks(batch, at.token, chosen.dim(1)));
    best_positions({chosen.at<int32_t>(at.token), count}, scores);
  });
}

void RefBackend::choose_blocks(TensorView chosen, TensorView q, const BlockChoice& choice,
                               const PagedKv& keys, const RaggedBatch& batch) {
  for_tokens(batch, [&](const TokenPlace& at) {
    const auto blocks = static_cast<size_t>(batch.last_seen(at.token) / choice.size + 1);
    std::vector<std::vector<float>> scores(
        static_cast<size_t>(q.dim(1)), std::vector<float>(blocks, -std::numeric_limits<float>::infinity()));
    IndexProducts{q, keys, batch}.run(at, [&](size_t position, size_t head, double product) {
      float& largest = scores[head][position / static_cast<size_t>(choice.size)];
      largest = larger_score(largest, static_cast<float>(product));
    });
    const auto count = static_cast<size_t>(chosen_blocks(batch, at.token, chosen.dim(2), choice.size));
    for (int64_t head = 0; head < q.dim(1); ++head)
      best_blocks({chosen.at<int32_t>(at.token, head), count}, scores[static_cast<size_t>(head)],
                  choice.local);
  });
}

}  // namespace sluice::kernels
