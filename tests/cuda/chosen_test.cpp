// Attention to chosen positions of the CUDA back-end against the reference: which positions and blocks are chosen, and
// attention to them.
#include "kernels/chosen_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::AttentionShape;
using kernels::BlockChoice;
using kernels::ChosenAttention;
using kernels::PagedKv;
using kernels::RaggedBatch;

struct ListedBatch {
  std::vector<int32_t> query_begin{0}, positions, blocks;
  std::vector<RaggedBatch::BlockTable> tables;
  RaggedBatch view() {
    tables = {{blocks, static_cast<int>(blocks.size() / (query_begin.size() - 1))}};
    return {query_begin, positions, tables};
  }
};

class ChosenTest : public EachActivation {
 protected:
  static constexpr int kBlockSize = 16, kSequences = 2;

  // A cache of both sides that holds `length` random positions of each sequence.
  struct Cache {
    std::vector<kernels::Memory> memory;
    PagedKv host{.k = {}, .v = {}, .k_scales = {}, .v_scales = {}};
    PagedKv device{.k = {}, .v = {}, .k_scales = {}, .v_scales = {}};
    int width = 0;
  };

  ListedBatch batch(const Cache& cache, const std::vector<std::pair<int, int>>& ranges) const {
    ListedBatch b;
    for (size_t s = 0; s < ranges.size(); ++s) {
      for (int p = ranges[s].first; p < ranges[s].second; ++p) b.positions.push_back(p);
      b.query_begin.push_back(static_cast<int32_t>(b.positions.size()));
      for (int i = 0; i < cache.width; ++i) b.blocks.push_back(static_cast<int32_t>(s) + i * kSequences);
    }
    return b;
  }

  enum class Values { Own, InKeys };
  Cache make_cache(DType type, int length, int heads, int key_dim, int value_dim, Values values,
                   bool same_keys = false) {
    Cache cache;
    cache.width = (length + kBlockSize - 1) / kBlockSize;
    const int64_t blocks = int64_t{kSequences} * cache.width;
    const auto make = [&](kernels::Backend& backend, PagedKv& kv) {
      const auto array = [&](kernels::Memory one) {
        cache.memory.push_back(std::move(one));
        return cache.memory.back().view;
      };
      kv.k = array(backend.allocate_kv(type, {blocks, kBlockSize, heads, key_dim}));
      if (type == DType::I8) kv.k_scales = array(backend.allocate(DType::F32, {blocks, kBlockSize, heads}));
      if (values == Values::InKeys) {
        kv.v = kv.k;
        kv.v.shape[3] = value_dim;
        kv.v_scales = kv.k_scales;
        return;
      }
      kv.v = array(backend.allocate_kv(type, {blocks, kBlockSize, heads, value_dim}));
      if (type == DType::I8) kv.v_scales = array(backend.allocate(DType::F32, {blocks, kBlockSize, heads}));
    };
    make(ref(), cache.host);
    make(gpu(), cache.device);
    ListedBatch b = batch(cache, {{0, length}, {0, length}});
    const RaggedBatch view = b.view();
    Both k = same_keys ? zeros(view.tokens(), int64_t{heads} * key_dim)
                       : random(view.tokens(), int64_t{heads} * key_dim);
    const Both v = random(view.tokens(), int64_t{heads} * value_dim);
    const bool own = values == Values::Own;
    gpu().begin(view);
    ref().write_kv(cache.host, heads_of(k.host, heads), own ? heads_of(v.host, heads) : TensorView{}, view);
    gpu().write_kv(cache.device, heads_of(k.device, heads), own ? heads_of(v.device, heads) : TensorView{},
                   view);
    return cache;
  }

  HostTensor downloaded(const TensorView& device_view) {
    HostTensor out = HostTensor::make(
        DType::I32, {device_view.dim(0), device_view.dim(1), device_view.rank > 2 ? device_view.dim(2) : 1});
    gpu().download(out.view, device_view);
    return out;
  }

  ChosenAttention& chooser(kernels::Backend& backend) { return dynamic_cast<ChosenAttention&>(backend); }

  // Rows in which the two sides chose otherwise, of `most` or as many as the token sees.
  static int64_t different(const RaggedBatch& view, const int32_t* a, const int32_t* b, int64_t choices,
                           int64_t most, int64_t size) {
    int64_t count = 0;
    for (int64_t i = 0; i < view.tokens() * choices; ++i)
      if (!std::equal(a + i * most, a + i * most + kernels::chosen_blocks(view, i / choices, most, size),
                      b + i * most))
        ++count;
    return count;
  }
};

TEST_P(ChosenTest, PositionsAlike) {
  struct Shape {
    int heads, dim, most, length;
  };
  for (const DType type : {DType::BF16, DType::F16, DType::F32}) {
    for (const auto [heads, dim, most, length] :
         {Shape{20, 24, 37, 150}, {64, 128, 40, 130}, {3, 8, 512, 1300}}) {
      SCOPED_TRACE(::testing::Message() << name(type) << " heads " << heads << " dim " << dim);
      const Cache cache = make_cache(type, length, 1, dim, dim, Values::InKeys);
      for (const auto& ranges : {std::vector<std::pair<int, int>>{{length - 60, length}, {0, 20}},
                                 {{length - 1, length}, {5, 6}}}) {
        ListedBatch b = batch(cache, ranges);
        const RaggedBatch view = b.view();
        const int64_t n = view.tokens();
        const Both q = random(n, int64_t{heads} * dim), weights = vector(n * heads);
        const auto rows = [&](const TensorView& flat) {
          return TensorView::contiguous(flat.data, DType::F32, {n, heads}, flat.device);
        };
        HostTensor expected = HostTensor::make(DType::I32, {n, most});
        const kernels::Memory made = gpu().allocate(DType::I32, {n, most});
        gpu().begin(view);
        chooser(ref()).choose_positions(expected.view, {heads_of(q.host, heads), rows(weights.host)},
                                        cache.host, view);
        chooser(gpu()).choose_positions(made.view, {heads_of(q.device, heads), rows(weights.device)},
                                        cache.device, view);
        const HostTensor got = downloaded(made.view);
        // A rounding error may choose another of two positions whose scores are nearly the same.
        EXPECT_LE(different(view, got.view.at<int32_t>(), expected.view.at<int32_t>(), 1, most, 1),
                  1 + n / 20);
      }
    }
  }
}

TEST_P(ChosenTest, OfEqualScoresTheEarlierPositions) {
  const Cache cache = make_cache(DType::BF16, 3000, 1, 32, 32, Values::InKeys, true);
  ListedBatch b = batch(cache, {{2990, 3000}, {1500, 1502}});
  const RaggedBatch view = b.view();
  const int64_t n = view.tokens();
  const Both q = random(n, 4 * 32), weights = vector(n * 4);
  const kernels::Memory made = gpu().allocate(DType::I32, {n, 1100});
  gpu().begin(view);
  chooser(gpu()).choose_positions(
      made.view,
      {heads_of(q.device, 4), TensorView::contiguous(weights.device.data, DType::F32, {n, 4}, Device::Cuda)},
      cache.device, view);
  const HostTensor got = downloaded(made.view);
  std::vector<int32_t> first(1100);
  std::iota(first.begin(), first.end(), 0);
  for (int64_t i = 0; i < n; ++i)
    EXPECT_TRUE(std::equal(first.begin(), first.end(), got.view.at<int32_t>() + i * 1100)) << i;
}

TEST_P(ChosenTest, BlocksAlike) {
  struct Shape {
    int heads, dim, most, size, local, length;
  };
  for (const DType type : {DType::BF16, DType::F32}) {
    for (const auto [heads, dim, most, size, local, length] : {Shape{2, 8, 3, 4, 1, 90},
                                                               {4, 128, 5, 128, 1, 1000},
                                                               {20, 16, 6, 12, 3, 300},
                                                               {1, 64, 2, 700, 2, 2000}}) {
      SCOPED_TRACE(::testing::Message() << name(type) << " heads " << heads << " size " << size);
      const Cache cache = make_cache(type, length, 1, dim, dim, Values::InKeys);
      ListedBatch b = batch(cache, {{length - 40, length}, {0, 30}});
      const RaggedBatch view = b.view();
      const int64_t n = view.tokens();
      const Both q = random(n, int64_t{heads} * dim);
      HostTensor expected = HostTensor::make(DType::I32, {n, heads, most});
      const kernels::Memory made = gpu().allocate(DType::I32, {n, heads, most});
      gpu().begin(view);
      const BlockChoice choice{size, local};
      chooser(ref()).choose_blocks(expected.view, heads_of(q.host, heads), choice, cache.host, view);
      chooser(gpu()).choose_blocks(made.view, heads_of(q.device, heads), choice, cache.device, view);
      const HostTensor got = downloaded(made.view);
      EXPECT_LE(different(view, got.view.at<int32_t>(), expected.view.at<int32_t>(), heads, most, size),
                1 + n * heads / 50);
    }
  }
}

TEST_P(ChosenTest, AttendsAlike) {
  struct Shape {
    int heads, kv_heads, key_dim, value_dim, choices, most, size;
    Values values;
    bool sinks = false;
    float softcap = 0.0f;
  };
  const Shape shapes[] = {{8, 2, 32, 32, 2, 3, 4, Values::Own},
                          {64, 4, 128, 128, 4, 4, 128, Values::Own},
                          {40, 1, 576, 512, 1, 600, 1, Values::InKeys},
                          {6, 6, 24, 40, 3, 9, 7, Values::Own, true},
                          {5, 1, 192, 160, 1, 300, 1, Values::InKeys, false, 5.0f}};
  for (const DType type : {DType::BF16, DType::F32, DType::F16, DType::I8, DType::F8_E4M3}) {
    for (const Shape& s : shapes) {
      SCOPED_TRACE(::testing::Message() << name(type) << " heads " << s.heads << " key dim " << s.key_dim);
      if (type == DType::F8_E4M3 && !ref().supports_kv(type)) continue;
      constexpr int kLength = 900;
      const Cache cache = make_cache(type, kLength, s.kv_heads, s.key_dim, s.value_dim, s.values);
      ListedBatch b = batch(cache, {{kLength - 9, kLength}, {0, 5}});
      const RaggedBatch view = b.view();
      const int64_t n = view.tokens();
      // Every token's last block, and others at random.
      HostTensor lists = HostTensor::make(DType::I32, {n, s.choices, s.most});
      for (int64_t i = 0; i < n * s.choices; ++i) {
        const int64_t last = view.last_seen(i / s.choices) / s.size,
                      count = std::min<int64_t>(last + 1, s.most);
        std::vector<int32_t> all(static_cast<size_t>(last));
        std::iota(all.begin(), all.end(), 0);
        for (size_t j = all.size(); j > 1; --j)
          std::swap(all[j - 1], all[static_cast<size_t>(below(static_cast<int>(j)))]);
        all.resize(static_cast<size_t>(count - 1));
        all.push_back(static_cast<int32_t>(last));
        std::sort(all.begin(), all.end());
        std::copy(all.begin(), all.end(), lists.view.at<int32_t>() + i * s.most);
      }
      const kernels::Memory device_lists = gpu().upload(lists.view);
      const Both q = random(n, int64_t{s.heads} * s.key_dim), sinks = vector(s.heads);
      Both out = zeros(n, int64_t{s.heads} * s.value_dim);
      AttentionShape shape{.heads = s.heads,
                           .kv_heads = s.kv_heads,
                           .key_dim = s.key_dim,
                           .value_dim = s.value_dim,
                           .scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim)),
                           .softcap = s.softcap,
                           .sinks = {},
                           .alibi = {}};
      AttentionShape device_shape = shape;
      if (s.sinks) shape.sinks = sinks.host, device_shape.sinks = sinks.device;
      gpu().begin(view);
      chooser(ref()).attend_chosen(heads_of(out.host, s.heads), heads_of(q.host, s.heads),
                                   {cache.host, lists.view, s.size}, view, shape);
      chooser(gpu()).attend_chosen(heads_of(out.device, s.heads), heads_of(q.device, s.heads),
                                   {cache.device, device_lists.view, s.size}, view, device_shape);
      const double most = type == DType::I8 ? 3e-2 : tolerance();
      EXPECT_LT(error(out.host, out.device), most);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, ChosenTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
