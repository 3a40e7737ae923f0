// Attention to chosen positions: every level against the reference, by a plain definition of the scores, and that neither
// batching nor chunking nor threads change a bit.
#include "kernels/chosen_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Backend;
using kernels::ChosenAttention;
using kernels::PagedKv;
using kernels::RaggedBatch;

constexpr int kLength = 800, kBlock = 16, kBlocks = kLength / kBlock + 1;
constexpr int kHeads = 6, kLatent = 24, kKeyDim = 32, kIndexHeads = 8, kIndexDim = 32;

// One sequence: latents and index keys in blocks that lie backwards, and what its tokens ask.
struct Indexed {
  explicit Indexed(DType type) {
    latents = make(type, kKeyDim, latent_scales);
    latents.v.shape[3] = kLatent;
    index = make(type, kIndexDim, index_scales);
    for (int i = 0; i < kBlocks; ++i) table.push_back(kBlocks - 1 - i);
    Random random(5);
    q = random.tensor({kLength, kHeads, kKeyDim});
    k = random.tensor({kLength, 1, kKeyDim});
    index_q = random.tensor({kLength, kIndexHeads, kIndexDim});
    index_k = random.tensor({kLength, 1, kIndexDim});
    weights = random.tensor({kLength, kIndexHeads});
  }

  PagedKv make(DType type, int width, HostTensor& scales) {
    memory.push_back(HostTensor::make(type, {kBlocks, kBlock, 1, width}));
    scales = HostTensor::make(DType::F32, {kBlocks, kBlock, 1});
    PagedKv kv{.k = memory.back().view, .v = memory.back().view, .k_scales = {}, .v_scales = {}};
    if (type == DType::I8) kv.k_scales = kv.v_scales = scales.view;
    return kv;
  }

  // Positions [begin, end) as one step; rows of `out` and `chosen` are those of the positions.
  void run(Backend& backend, int begin, int end, TensorView out, TensorView chosen) const {
    std::vector<int32_t> positions(static_cast<size_t>(end - begin));
    std::iota(positions.begin(), positions.end(), begin);
    const std::vector<int32_t> begins{0, end - begin};
    const RaggedBatch::BlockTable tables[1] = {{table, kBlocks}};
    const RaggedBatch batch{begins, positions, tables};
    backend.write_kv(latents, k.view.rows(begin, end), {}, batch);
    backend.write_kv(index, index_k.view.rows(begin, end), {}, batch);
    auto& chooser = dynamic_cast<ChosenAttention&>(backend);
    chooser.choose_positions(chosen.rows(begin, end),
                             {index_q.view.rows(begin, end), weights.view.rows(begin, end)}, index, batch);
    const TensorView rows = chosen.rows(begin, end);
    chooser.attend_chosen(out.rows(begin, end), q.view.rows(begin, end),
                          {latents, rows.columns_as_heads(0, 1, rows.dim(1))}, batch, shape);
  }

  kernels::AttentionShape shape{
      .heads = kHeads, .kv_heads = 1, .key_dim = kKeyDim, .value_dim = kLatent, .scale = 0.2f};
  std::vector<HostTensor> memory;
  HostTensor latent_scales, index_scales;
  PagedKv latents, index;
  std::vector<int32_t> table;
  HostTensor q, k, index_q, index_k, weights;
};

struct Attended {
  explicit Attended(int64_t most)
      : out(HostTensor::make(DType::F32, {kLength, kHeads, kLatent})),
        chosen(HostTensor::make(DType::I32, {kLength, most})) {}
  HostTensor out, chosen;
};

TEST(ChosenAttention, ChoosesTheBestByTheirScores) {
  const Indexed data(DType::F32);
  const auto reference = kernels::make_ref_backend();
  Attended all(40);
  data.run(*reference, 0, 200, all.out.view, all.chosen.view);
  for (const int64_t token : {0, 39, 40, 41, 199}) {
    std::vector<std::pair<double, int32_t>> scores;
    for (int32_t p = 0; p <= token; ++p) {
      double sum = 0;
      for (int64_t h = 0; h < kIndexHeads; ++h) {
        double product = 0;
        for (int64_t i = 0; i < kIndexDim; ++i)
          product += double{data.index_q.view.at<float>(token, h)[i]} * data.index_k.view.at<float>(p, 0)[i];
        sum += data.weights.view.at<float>(token)[h] * std::max(0.0, product);
      }
      scores.emplace_back(-sum, p);
    }
    std::sort(scores.begin(), scores.end());
    std::vector<int32_t> expected;
    for (size_t i = 0; i < std::min<size_t>(40, scores.size()); ++i) expected.push_back(scores[i].second);
    std::sort(expected.begin(), expected.end());
    const int32_t* row = all.chosen.view.at<int32_t>(token);
    EXPECT_EQ(std::vector<int32_t>(row, row + expected.size()), expected) << token;
  }
}

TEST(ChosenAttention, OfEqualScoresTheEarlierPositionIsChosen) {
  std::vector<int32_t> out(3);
  kernels::best_positions(out, std::vector<float>{0.0f, 2.0f, -0.0f, 0.0f, 2.0f, -1.0f});
  EXPECT_EQ(out, (std::vector<int32_t>{0, 1, 4}));
  out.resize(4);
  kernels::best_positions(out, std::vector<float>{-1.0f, -3.0f, -3.0f, -2.0f, -3.0f});
  EXPECT_EQ(out, (std::vector<int32_t>{0, 1, 2, 3}));
  out.resize(2);
  kernels::best_positions(out, std::vector<float>{1.0f, std::nanf(""), 3.0f, -std::nanf("")});
  EXPECT_EQ(out, (std::vector<int32_t>{1, 3}));

  Indexed same(DType::F32);  // every key is the first
  for (int64_t p = 1; p < kLength; ++p)
    std::copy_n(same.index_k.view.at<float>(0, 0), kIndexDim, same.index_k.view.at<float>(p, 0));
  std::vector<int32_t> first(40);
  std::iota(first.begin(), first.end(), 0);
  for (const auto& backend : cpu_backends(2)) {
    Attended all(40);
    same.run(*backend, 0, kLength, all.out.view, all.chosen.view);
    for (const int64_t token : {40, 577, kLength - 1}) {
      const int32_t* row = all.chosen.view.at<int32_t>(token);
      EXPECT_EQ(std::vector<int32_t>(row, row + 40), first) << backend->name() << " " << token;
    }
  }
}

TEST(ChosenAttention, EveryLevelAgreesWithTheReference) {
  const auto reference = kernels::make_ref_backend();
  for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::I8}) {
    Attended expected(70);
    const Indexed first(type);
    const int length = small_run() ? 150 : 300;
    first.run(*reference, 0, length, expected.out.view, expected.chosen.view);
    for (const auto& backend : cpu_backends(2)) {
      SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type));
      const Indexed data(type);
      Attended all(70);
      data.run(*backend, 0, length, all.out.view, all.chosen.view);
      // A rounding error may choose another of two positions whose scores are nearly the same: as good as none does.
      int64_t different = 0;
      for (int64_t token = 0; token < length; ++token) {
        const size_t count = static_cast<size_t>(std::min<int64_t>(token + 1, 70));
        const int32_t* ours = all.chosen.view.at<int32_t>(token);
        const int32_t* theirs = expected.chosen.view.at<int32_t>(token);
        if (!std::equal(ours, ours + count, theirs)) {
          ++different;
          continue;
        }
        ASSERT_TRUE(near(all.out.view.rows(token, token + 1), expected.out.view.rows(token, token + 1),
                         attention_tolerance(*backend, type)))
            << token;
      }
      EXPECT_LE(different, type == DType::I8 ? 12 : 1);
    }
  }
}

TEST(ChosenAttention, StepsAndThreadsChangeNoBit) {
  for (const DType type : {DType::F16, DType::I8}) {
    for (size_t level = 0; level < cpu_backends(1).size(); ++level) {
      const auto one = std::move(cpu_backends(1)[level]), three = std::move(cpu_backends(3)[level]);
      SCOPED_TRACE(::testing::Message() << one->name() << " " << name(type));
      const Indexed whole(type), cut(type);
      Attended expected(600), all(600);
      whole.run(*one, 0, kLength, expected.out.view, expected.chosen.view);
      for (int begin = 0, end = 0; begin < kLength; begin = end) {
        end = begin < 700 ? std::min(700, begin + 233) : std::min(kLength, begin + 1 + begin % 3);
        cut.run(*three, begin, end, all.out.view, all.chosen.view);
      }
      ASSERT_TRUE(same_bits(all.out.view, expected.out.view));
    }
  }
}

TEST(ChosenAttention, ToAllPositionsHasTheBitsOfAttention) {
  for (const DType type : {DType::F16, DType::I8}) {
    auto backends = cpu_backends(2);
    backends.push_back(kernels::make_ref_backend());
    for (const auto& backend : backends) {
      SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type));
      const int length = backend->name() == "ref" ? 90 : 700;
      const Indexed data(type);
      Attended all(700);
      data.run(*backend, 0, length, all.out.view, all.chosen.view);
      std::vector<int32_t> positions(static_cast<size_t>(length));
      std::iota(positions.begin(), positions.end(), 0);
      const std::vector<int32_t> begins{0, length};
      const RaggedBatch::BlockTable tables[1] = {{data.table, kBlocks}};
      HostTensor out = HostTensor::make(DType::F32, {length, kHeads, kLatent});
      backend->attend(out.view, data.q.view.rows(0, length), data.latents, {begins, positions, tables},
                      data.shape);
      ASSERT_TRUE(same_bits(all.out.view.rows(0, length), out.view));
    }
  }
}

constexpr int kKvHeads = 2, kHeadDim = 16, kSize = 12;

// One sequence of two kv heads, each of which attends to blocks that a head of its indexer chooses.
struct Blocked {
  explicit Blocked(DType type) {
    const auto cache = [&](int heads, int width, TensorView& view, TensorView& view_scales) {
      memory.push_back(HostTensor::make(type, {kBlocks, kBlock, heads, width}));
      scales.push_back(HostTensor::make(DType::F32, {kBlocks, kBlock, heads}));
      view = memory.back().view;
      if (type == DType::I8) view_scales = scales.back().view;
    };
    cache(kKvHeads, kHeadDim, kv.k, kv.k_scales);
    cache(kKvHeads, kHeadDim, kv.v, kv.v_scales);
    cache(1, kIndexDim, kv.index, kv.index_scales);
    for (int i = 0; i < kBlocks; ++i) table.push_back(kBlocks - 1 - i);
    Random random(7);
    q = random.tensor({kLength, kHeads, kHeadDim});
    k = random.tensor({kLength, kKvHeads, kHeadDim});
    v = random.tensor({kLength, kKvHeads, kHeadDim});
    index_q = random.tensor({kLength, kKvHeads, kIndexDim});
    index_k = random.tensor({kLength, 1, kIndexDim});
  }

  void run(Backend& backend, int begin, int end, TensorView out, TensorView chosen) const {
    std::vector<int32_t> positions(static_cast<size_t>(end - begin));
    std::iota(positions.begin(), positions.end(), begin);
    const std::vector<int32_t> begins{0, end - begin};
    const RaggedBatch::BlockTable tables[1] = {{table, kBlocks}};
    const RaggedBatch batch{begins, positions, tables};
    const PagedKv index = kernels::index_keys(kv);
    backend.write_kv(kv, k.view.rows(begin, end), v.view.rows(begin, end), batch);
    backend.write_kv(index, index_k.view.rows(begin, end), {}, batch);
    auto& chooser = dynamic_cast<ChosenAttention&>(backend);
    chooser.choose_blocks(chosen.rows(begin, end), index_q.view.rows(begin, end), {kSize, local}, index,
                          batch);
    chooser.attend_chosen(out.rows(begin, end), q.view.rows(begin, end), {kv, chosen.rows(begin, end), kSize},
                          batch, shape);
  }

  kernels::AttentionShape shape{
      .heads = kHeads, .kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim, .scale = 0.25f};
  int local = 2;
  std::vector<HostTensor> memory, scales;
  PagedKv kv{.k = {}, .v = {}, .k_scales = {}, .v_scales = {}};
  std::vector<int32_t> table;
  HostTensor q, k, v, index_q, index_k;
};

struct BlockAttended {
  explicit BlockAttended(int64_t most)
      : out(HostTensor::make(DType::F32, {kLength, kHeads, kHeadDim})),
        chosen(HostTensor::make(DType::I32, {kLength, kKvHeads, most})) {}
  HostTensor out, chosen;
};

// Softmax attention of one head to the positions whose blocks are among `blocks`, in plain loops.
std::vector<double> attended(const Blocked& data, int64_t token, int64_t head,
                             const std::set<int64_t>& blocks) {
  const int64_t kv_head = head / (kHeads / kKvHeads);
  std::vector<double> sums(kHeadDim);
  double total = 0;
  for (int64_t p = 0; p <= token; ++p) {
    if (!blocks.contains(p / kSize)) continue;
    double score = 0;
    for (int64_t i = 0; i < kHeadDim; ++i)
      score += double{data.q.view.at<float>(token, head)[i]} * data.k.view.at<float>(p, kv_head)[i];
    const double weight = std::exp(0.25 * score);
    total += weight;
    for (int64_t i = 0; i < kHeadDim; ++i)
      sums[static_cast<size_t>(i)] += weight * data.v.view.at<float>(p, kv_head)[i];
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

TEST(ChosenBlocks, EachHeadAttendsToItsBestAndTheLast) {
  const Blocked data(DType::F32);
  const auto reference = kernels::make_ref_backend();
  BlockAttended all(5);
  data.run(*reference, 0, 200, all.out.view, all.chosen.view);
  for (const int64_t token : {0, 59, 60, 61, 143, 199}) {
    for (int64_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      std::vector<std::pair<double, int64_t>> scores;
      for (int64_t b = 0; b <= token / kSize; ++b) scores.emplace_back(1e9, b);
      for (int64_t p = 0; p <= token; ++p) {
        double product = 0;
        for (int64_t i = 0; i < kIndexDim; ++i)
          product +=
              double{data.index_q.view.at<float>(token, kv_head)[i]} * data.index_k.view.at<float>(p, 0)[i];
        double& best = scores[static_cast<size_t>(p / kSize)].first;
        best = std::min(best, p / kSize > token / kSize - 2 ? -1e9 : -product);
      }
      std::sort(scores.begin(), scores.end());
      std::set<int64_t> expected;
      for (size_t i = 0; i < std::min<size_t>(5, scores.size()); ++i) expected.insert(scores[i].second);
      const int32_t* row = all.chosen.view.at<int32_t>(token, kv_head);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row)) << token << " " << kv_head;
      for (int64_t head = 3 * kv_head; head < 3 * kv_head + 3; ++head) {
        const std::vector<double> sums = attended(data, token, head, expected);
        for (int64_t i = 0; i < kHeadDim; ++i)
          EXPECT_NEAR(all.out.view.at<float>(token, head)[i], sums[static_cast<size_t>(i)], 1e-5) << token;
      }
    }
  }
}

TEST(ChosenBlocks, OfEqualOnesTheEarlierIsChosen) {
  std::vector<int32_t> out(3);
  kernels::best_blocks(out, std::vector<float>{1.0f, 2.0f, 2.0f, 2.0f, 0.0f}, 1);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 2, 4}));
  kernels::best_blocks(out, std::vector<float>{9.0f, 2.0f, 1.0f, 0.0f, 0.0f}, 3);
  EXPECT_EQ(out, (std::vector<int32_t>{2, 3, 4}));
  kernels::best_blocks(out, std::vector<float>{9.0f, std::nanf(""), std::nanf(""), 0.0f, 0.0f}, 1);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 2, 4}));
}

TEST(ChosenBlocks, EveryLevelAgreesWithTheReference) {
  const auto reference = kernels::make_ref_backend();
  for (const DType type : {DType::F32, DType::F16, DType::I8}) {
    BlockAttended expected(5);
    const Blocked first(type);
    first.run(*reference, 0, 200, expected.out.view, expected.chosen.view);
    for (const auto& backend : cpu_backends(2)) {
      SCOPED_TRACE(::testing::Message() << backend->name() << " " << name(type));
      const Blocked data(type);
      BlockAttended all(5);
      data.run(*backend, 0, 200, all.out.view, all.chosen.view);
      int64_t different = 0;  // by rounding errors of blocks that are nearly as good
      for (int64_t token = 60; token < 200; ++token) {
        if (!same_bits(all.chosen.view.rows(token, token + 1), expected.chosen.view.rows(token, token + 1))) {
          ++different;
          continue;
        }
        ASSERT_TRUE(near(all.out.view.rows(token, token + 1), expected.out.view.rows(token, token + 1),
                         attention_tolerance(*backend, type)))
            << token;
      }
      EXPECT_LE(different, type == DType::I8 ? 8 : 1);
    }
  }
}

TEST(ChosenBlocks, StepsAndThreadsChangeNoBit) {
  for (const DType type : {DType::F16, DType::I8}) {
    for (size_t level = 0; level < cpu_backends(1).size(); ++level) {
      const auto one = std::move(cpu_backends(1)[level]), three = std::move(cpu_backends(3)[level]);
      SCOPED_TRACE(::testing::Message() << one->name() << " " << name(type));
      const Blocked whole(type), cut(type);
      BlockAttended expected(50), all(50);
      whole.run(*one, 0, kLength, expected.out.view, expected.chosen.view);
      for (int begin = 0, end = 0; begin < kLength; begin = end) {
        end = begin < 700 ? std::min(700, begin + 233) : std::min(kLength, begin + 1 + begin % 3);
        cut.run(*three, begin, end, all.out.view, all.chosen.view);
      }
      ASSERT_TRUE(same_bits(all.out.view, expected.out.view));
    }
  }
}

}  // namespace
}  // namespace sluice::parity
