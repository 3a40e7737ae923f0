// Paged attention of every level against the reference: cache types, shapes, windows, sinks, slopes, soft
// caps; and that neither batching nor chunking nor threads change a bit.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/cpu/simd/isa.h"
#include "kernels/host.h"
#include "kernels/partial_attention.h"
#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::AttentionShape;
using kernels::Backend;
using kernels::PagedKv;
using kernels::RaggedBatch;

struct Shape {
  int heads = 4;
  int kv_heads = 2;
  int key_dim = 16;
  int value_dim = 16;
  bool latent = false;  // values are the first part of the keys
};

// The KV memory of one layer for some sequences, blocks handed out in a shuffled order, tables wide enough
// for all.
class Cache {
 public:
  Cache(const Shape& shape, DType type, int sequences, int blocks_each, int block_size)
      : width_(blocks_each), block_size_(block_size) {
    const int64_t blocks = int64_t{sequences} * blocks_each;
    k_ = HostTensor::make(type, {blocks, block_size, shape.kv_heads, shape.key_dim});
    v_ = HostTensor::make(type, {blocks, block_size, shape.kv_heads, shape.value_dim});
    k_scales_ = HostTensor::make(DType::F32, {blocks, block_size, shape.kv_heads});
    v_scales_ = HostTensor::make(DType::F32, {blocks, block_size, shape.kv_heads});
    // A step that shares no factor with the count visits every block once, out of order.
    int64_t step = 7;
    while (std::gcd(step, blocks) != 1) ++step;
    for (int64_t i = 0; i < blocks; ++i) table_.push_back(static_cast<int32_t>((i * step + 3) % blocks));
    kv_.k = k_.view;
    kv_.v = v_.view;
    if (type == DType::I8) {
      kv_.k_scales = k_scales_.view;
      kv_.v_scales = v_scales_.view;
    }
    if (shape.latent) {
      kv_.v = kv_.k;
      kv_.v.shape[3] = shape.value_dim;
      kv_.v_scales = kv_.k_scales;
    }
  }
  const PagedKv& kv() const { return kv_; }
  // The table rows of the given sequences, one after the other.
  std::vector<int32_t> tables(const std::vector<int>& sequences) const {
    std::vector<int32_t> rows;
    for (int sequence : sequences) {
      rows.insert(rows.end(), table_.begin() + sequence * width_, table_.begin() + (sequence + 1) * width_);
    }
    return rows;
  }
  int width() const { return width_; }

 private:
  int width_;
  int block_size_;
  HostTensor k_, v_, k_scales_, v_scales_;
  std::vector<int32_t> table_;
  PagedKv kv_;
};

struct Work {
  int sequence;
  int begin;
  int end;
};

// Writes k and v of the work's tokens and attends. q, k, v are looked up by (sequence, position), so that any
// cut of the same sequences asks for the same rows. Returns [tokens, heads, value_dim].
class Runner {
 public:
  Runner(const Shape& shape, int sequences, int length) : shape_(shape), length_(length) {
    Random random(31);
    q_ = random.tensor({int64_t{sequences} * length, shape.heads, shape.key_dim});
    k_ = random.tensor({int64_t{sequences} * length, shape.kv_heads, shape.key_dim});
    v_ = random.tensor({int64_t{sequences} * length, shape.kv_heads, shape.value_dim});
  }

  // Makes one channel of keys and values larger than the others.
  void stretch_channel(int64_t channel, float factor) {
    for (const TensorView& view : {k_.view, v_.view})
      for (int64_t token = 0; token < view.dim(0); ++token)
        for (int64_t head = 0; head < view.dim(1); ++head) view.at<float>(token, head)[channel] *= factor;
  }

  // Makes one number of a key, or of a value, not finite.
  void spoil_key(int position, float value) { k_.view.at<float>(position, 0)[1] = value; }
  void spoil_value(int position, float value) { v_.view.at<float>(position, 0)[1] = value; }

  HostTensor run(Backend& backend, const Cache& cache, const AttentionShape& shape,
                 const std::vector<Work>& step) {
    std::vector<int32_t> begins{0};
    std::vector<int32_t> positions;
    std::vector<int32_t> rows;
    std::vector<int> sequences;
    for (const Work& work : step) {
      for (int position = work.begin; position < work.end; ++position) {
        positions.push_back(position);
        rows.push_back(work.sequence * length_ + position);
      }
      begins.push_back(static_cast<int32_t>(positions.size()));
      sequences.push_back(work.sequence);
    }
    const std::vector<int32_t> table = cache.tables(sequences);
    const RaggedBatch::BlockTable tables[1] = {{table, cache.width()}};
    const RaggedBatch batch{begins, positions, tables};
    const auto n = static_cast<int64_t>(positions.size());
    HostTensor q = HostTensor::make(DType::F32, {n, shape_.heads, shape_.key_dim});
    HostTensor k = HostTensor::make(DType::F32, {n, shape_.kv_heads, shape_.key_dim});
    HostTensor v = HostTensor::make(DType::F32, {n, shape_.kv_heads, shape_.value_dim});
    kernels::gather_host_rows(q.view, q_.view, rows);
    kernels::gather_host_rows(k.view, k_.view, rows);
    kernels::gather_host_rows(v.view, v_.view, rows);
    backend.begin(batch);
    backend.write_kv(cache.kv(), k.view, shape_.latent ? TensorView{} : v.view, batch);
    HostTensor out = HostTensor::make(DType::F32, {n, shape_.heads, shape_.value_dim});
    backend.attend(out.view, q.view, cache.kv(), batch, shape);
    return out;
  }

 private:
  Shape shape_;
  int length_;
  HostTensor q_, k_, v_;
};

AttentionShape attention_of(const Shape& shape) {
  AttentionShape attention;
  attention.heads = shape.heads;
  attention.kv_heads = shape.kv_heads;
  attention.key_dim = shape.key_dim;
  attention.value_dim = shape.value_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  return attention;
}

// Two sequences: a prompt and one that already has context.
void check(const Shape& shape, const AttentionShape& attention, DType type, int length) {
  const auto reference = kernels::make_ref_backend();
  const int blocks = length / 8 + 1;
  Runner runner(shape, 2, length);
  const std::vector<Work> first{{1, 0, length - 3}};
  const std::vector<Work> second{{0, 0, length}, {1, length - 3, length}};
  Cache expected_cache(shape, type, 2, blocks, 8);
  runner.run(*reference, expected_cache, attention, first);
  const HostTensor expected = runner.run(*reference, expected_cache, attention, second);
  for (const auto& backend : cpu_backends(2)) {
    SCOPED_TRACE(::testing::Message()
                 << backend->name() << " " << name(type) << " heads " << shape.heads << "/" << shape.kv_heads
                 << " dims " << shape.key_dim << "/" << shape.value_dim);
    Cache cache(shape, type, 2, blocks, 8);
    runner.run(*backend, cache, attention, first);
    const HostTensor out = runner.run(*backend, cache, attention, second);
    ASSERT_EQ(
        std::memcmp(cache.kv().k.data, expected_cache.kv().k.data, static_cast<size_t>(cache.kv().k.bytes())),
        0);
    ASSERT_TRUE(near(out.view, expected.view, attention_tolerance(*backend, type)));
  }
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes{{4, 2, 16, 16},       {3, 3, 7, 5},     {9, 3, 64, 64},
                                          {8, 1, 40, 32, true}, {20, 1, 24, 24},  {4, 1, 80, 96},
                                          {6, 2, 128, 192},     {4, 2, 112, 256}, {2, 1, 576, 512, true}};
  return kShapes;
}

// What is merged with attention over other keys: the result over these, and the log of the sum of its softmax.
TEST(AttendPart, AgreesAndSeesNothingBeforeTheFirstKey) {
  const Shape shape{6, 2, 16, 24};
  const AttentionShape attention = attention_of(shape);
  const int length = 700, block = 8;
  Random random(77);
  const HostTensor k = random.tensor({length, shape.kv_heads, shape.key_dim});
  const HostTensor v = random.tensor({length, shape.kv_heads, shape.value_dim});
  const std::vector<int32_t> seen{-1, 0, 7, 511, 512, 699};
  const auto n = static_cast<int64_t>(seen.size());
  const HostTensor q = random.tensor({n, shape.heads, shape.key_dim}, 3.0f);
  std::vector<int32_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> all{0, length}, few{0, static_cast<int32_t>(n)};
  const auto run = [&](Backend& backend, HostTensor& out, HostTensor& lse) {
    const Cache cache(shape, DType::F32, 1, length / block + 1, block);
    const std::vector<int32_t> table = cache.tables({0});
    const RaggedBatch::BlockTable tables[1] = {{table, cache.width()}};
    backend.write_kv(cache.kv(), k.view, v.view, {all, positions, tables});
    out = HostTensor::make(DType::F32, {n, shape.heads, shape.value_dim});
    lse = HostTensor::make(DType::F32, {n, shape.heads});
    auto* parts = dynamic_cast<kernels::PartialAttention*>(&backend);
    ASSERT_NE(parts, nullptr);
    parts->attend_part({out.view, lse.view}, q.view, cache.kv(), {few, seen, tables}, attention);
  };
  HostTensor expected, expected_lse, out, lse;
  run(*kernels::make_ref_backend(), expected, expected_lse);
  for (const int threads : {1, 3})
    for (const auto& backend : cpu_backends(threads)) {
      SCOPED_TRACE(backend->name());
      run(*backend, out, lse);
      for (int64_t head = 0; head < shape.heads; ++head) {
        EXPECT_EQ(lse.view.at<float>(0)[head], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(expected_lse.view.at<float>(0)[head], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(out.view.at<float>(0, head)[0], 0.0f);
      }
      const float tolerance = attention_tolerance(*backend, DType::F32);
      ASSERT_TRUE(near(out.view, expected.view, tolerance));
      ASSERT_TRUE(near(lse.view.rows(1, n), expected_lse.view.rows(1, n), tolerance));
    }
}

// Whatever the cache holds them as: what attends to a key or value that is not finite is not finite either.
TEST(Attend, WhatIsNotFiniteStaysSo) {
  const Shape shape{2, 1, 16, 16};
  for (const auto& backend : cpu_backends(1)) {
    for (DType type : {DType::F32, DType::F16, DType::BF16, DType::I8}) {
      for (const bool key : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << backend->name() << " " << name(type) << (key ? " key" : " value"));
        Runner runner(shape, 1, 20);
        if (key) runner.spoil_key(5, std::nanf(""));
        if (!key) runner.spoil_value(5, std::nanf(""));
        const Cache cache(shape, type, 1, 3, 8);
        const std::vector<Work> whole{{0, 0, 20}};
        const HostTensor out = runner.run(*backend, cache, attention_of(shape), whole);
        for (int64_t token = 5; token < 20; ++token)
          for (int64_t head = 0; head < 2; ++head)
            ASSERT_FALSE(std::isfinite(out.view.at<float>(token, head)[1])) << token;
      }
    }
  }
}

TEST(Rotate, IsItsOwnInverseAndTheHadamardMatrix) {
  for (const auto& level : kernels::cpu::available_isa_levels()) {
    for (const auto& [width, block] :
         {std::pair(64, 64), std::pair(80, 16), std::pair(96, 32), std::pair(256, 256), std::pair(576, 64),
          std::pair(6, 2), std::pair(128, 128), std::pair(7, 1)}) {
      SCOPED_TRACE(::testing::Message() << level.name << " " << width << " in blocks of " << block);
      Random random(41);
      const HostTensor x = random.tensor({width});
      std::vector<float> once(static_cast<size_t>(width)), twice(once.size());
      level.table().rotate(once.data(), x.view.at<float>(), width, block);
      level.table().rotate(twice.data(), once.data(), width, block);
      for (int i = 0; i < width; ++i) {
        double sum = 0;
        for (int j = 0; j < block; ++j) {
          const bool minus = std::popcount(static_cast<unsigned>(i % block & j)) % 2 == 1;
          sum += (minus ? -1.0 : 1.0) * x.view.at<float>()[i / block * block + j];
        }
        EXPECT_NEAR(once[static_cast<size_t>(i)], sum / std::sqrt(block), 1e-5);
        EXPECT_NEAR(twice[static_cast<size_t>(i)], x.view.at<float>()[i], 1e-5);
      }
    }
  }
}

// Bytes hold keys and values of which one channel is far above the others: rounded as they are, that channel would decide the
// step of all.
TEST(Attend, BytesHoldAnOutlierChannel) {
  for (const Shape& shape : {Shape{9, 3, 64, 64}, Shape{2, 1, 80, 96}, Shape{4, 1, 72, 64, true}}) {
    Runner runner(shape, 1, 100);
    runner.stretch_channel(3, 30.0f);
    AttentionShape attention = attention_of(shape);
    attention.scale /= 8;  // the outlier's scores leave other keys some weight
    const std::vector<Work> whole{{0, 0, 100}};
    const HostTensor expected =
        runner.run(*kernels::make_ref_backend(), Cache(shape, DType::F32, 1, 13, 8), attention, whole);
    auto backends = cpu_backends(1);
    backends.push_back(kernels::make_ref_backend());
    for (const auto& backend : backends) {
      const HostTensor out = runner.run(*backend, Cache(shape, DType::I8, 1, 13, 8), attention, whole);
      double wrong = 0, all = 0;
      for (int64_t token = 0; token < 100; ++token)
        for (int64_t head = 0; head < shape.heads; ++head)
          for (int64_t i = 0; i < shape.value_dim; ++i) {
            if (i == 3) continue;
            const double right = expected.view.at<float>(token, head)[i];
            wrong += std::pow(out.view.at<float>(token, head)[i] - right, 2);
            all += right * right;
          }
      EXPECT_LT(std::sqrt(wrong / all), 0.06) << backend->name() << " " << shape.key_dim;
    }
  }
}

TEST(Attend, CacheTypesAndShapes) {
  for (const Shape& shape : shapes()) {
    for (DType type : {DType::F32, DType::F16, DType::BF16, DType::I8}) {
      check(shape, attention_of(shape), type, 37);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Attend, WindowSoftcapSinksAndSlopes) {
  Random random(32);
  const HostTensor sinks = random.tensor({20});
  const HostTensor slopes = random.tensor({20}, 0.1f);
  for (const Shape& shape : shapes()) {
    AttentionShape attention = attention_of(shape);
    attention.window = 11;
    check(shape, attention, DType::F32, 37);
    attention.chunked = true;
    check(shape, attention, DType::F32, 37);
    attention.chunked = false;
    attention.softcap = 2.0f;
    check(shape, attention, DType::F32, 37);
    attention.sinks = sinks.view.rows(0, shape.heads);
    check(shape, attention, DType::F16, 37);
    attention.alibi = slopes.view.rows(0, shape.heads);
    check(shape, attention, DType::F32, 37);
    attention.window = 0;
    check(shape, attention, DType::F32, 37);
    if (HasFatalFailure()) return;
  }
}

TEST(Attend, LongContextsAcrossChunks) {
  Random random(33);
  const HostTensor sinks = random.tensor({4});
  const Shape shape{4, 1, 16, 16};
  AttentionShape attention = attention_of(shape);
  check(shape, attention, DType::F32, small_run() ? 520 : 1100);
  attention.window = 520;
  attention.sinks = sinks.view;
  check(shape, attention, DType::F16, small_run() ? 530 : 1100);
}

// The last tokens of a sequence: in one step, in steps of any size, beside another sequence, on one thread or
// two.
TEST(Attend, BitsDependOnTheTokenAlone) {
  const int length = small_run() ? 540 : 1060;
  const int context = length - (small_run() ? 20 : 60);
  const Shape shape{6, 2, 16, 12};
  AttentionShape attention = attention_of(shape);
  const auto one = cpu_backends(1);
  const auto two = cpu_backends(2);
  for (int i = 0; i < 8; ++i) {
    const int window = i % 2 == 0 ? 0 : length * 2 / 3;
    const DType type = std::array{DType::F16, DType::I8, DType::BF16, DType::F32}[static_cast<size_t>(i / 2)];
    attention.window = window;
    for (size_t b = 0; b < one.size(); ++b) {
      SCOPED_TRACE(::testing::Message() << one[b]->name() << " window " << window << " " << name(type));
      Runner runner(shape, 2, length);
      Cache whole_cache(shape, type, 2, length / 16 + 1, 16);
      const HostTensor whole = runner.run(*one[b], whole_cache, attention, {{0, 0, length}});
      Cache cache(shape, type, 2, length / 16 + 1, 16);
      runner.run(*two[b], cache, attention, {{0, 0, context}, {1, 0, context / 2}});
      for (int begin = context; begin < length;) {
        const int end = std::min(length, begin + 1 + (begin % 3) * 4);
        const HostTensor part =
            runner.run(*two[b], cache, attention, {{1, context / 2, context / 2 + 1}, {0, begin, end}});
        ASSERT_TRUE(same_bits(part.view.rows(1, 1 + end - begin), whole.view.rows(begin, end))) << begin;
        const HostTensor alone = runner.run(*two[b], cache, attention, {{0, end - 1, end}});
        ASSERT_TRUE(same_bits(alone.view, whole.view.rows(end - 1, end))) << end;
        begin = end;
      }
    }
  }
}

TEST(CopyBlocks, MovesKeysValuesAndScales) {
  const Shape shape{2, 2, 8, 8};
  for (const auto& backend : cpu_backends(1)) {
    for (DType type : {DType::F16, DType::I8}) {
      Runner runner(shape, 1, 8);
      Cache cache(shape, type, 1, 5, 4);
      runner.run(*backend, cache, attention_of(shape), {{0, 0, 8}});
      const std::vector<int32_t> table = cache.tables({0});
      const std::pair<BlockId, BlockId> moves[] = {{BlockId{table[0]}, BlockId{table[3]}}};
      backend->copy_blocks(cache.kv(), moves);
      for (const TensorView& memory :
           {cache.kv().k, cache.kv().v, cache.kv().k_scales, cache.kv().v_scales}) {
        if (memory.empty()) continue;
        const TensorView from = memory.rows(table[0], table[0] + 1);
        const TensorView to = memory.rows(table[3], table[3] + 1);
        EXPECT_EQ(std::memcmp(from.data, to.data, static_cast<size_t>(from.bytes())), 0) << name(type);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::parity
