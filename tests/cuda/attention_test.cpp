// Positions, cache and attention of the CUDA back-end against the reference, over a prompt in chunks and then
// single tokens; and steps replayed as graphs against steps run directly.
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::AttentionShape;
using kernels::PagedKv;
using kernels::RaggedBatch;

struct Case {
  int heads, kv_heads, key_dim, value_dim;
  DType type = DType::BF16;
  int block_size = 16;
  int window = 0;
  float softcap = 0.0f;
  bool sinks = false, alibi = false, latent = false, chunked = false;
};

struct Batch {
  std::vector<int32_t> query_begin{0}, positions, blocks, rope_lengths;
  std::vector<RaggedBatch::BlockTable> tables;
  RaggedBatch view() {
    tables = {{blocks, static_cast<int>(blocks.size() / (query_begin.size() - 1))}};
    return {query_begin, positions, tables, rope_lengths};
  }
};

// Rows of `pairs` frequencies, of which lengths over the limit take the later ones.
kernels::RopeTable rope_table(const TensorView& frequencies, int64_t pairs, int limit = 0) {
  const int64_t rows = frequencies.elements() / pairs;
  return {TensorView::contiguous(frequencies.data, DType::F32, {rows, pairs}, frequencies.device), limit,
          1.25f, 0.75f};
}

struct SmallLayer {
  DType type;  // of its matrices
  int sequences;
  DType kv = DType::BF16;
  bool bias = false;
};
std::ostream& operator<<(std::ostream& out, const SmallLayer& layer) {
  return out << name(layer.type) << ", " << layer.sequences << " sequences, KV in " << name(layer.kv);
}

class AttentionTest : public EachActivation {
 protected:
  static constexpr int kSequences = 34, kLength = 150;

  void make_cache(const Case& c) {
    width_ = (kLength + c.block_size - 1) / c.block_size;
    const int64_t blocks = int64_t{kSequences} * width_ + 1;
    const auto make = [&](kernels::Backend& backend, PagedKv& kv, std::vector<kernels::Memory>& memory) {
      memory.push_back(backend.allocate_kv(c.type, {blocks, c.block_size, c.kv_heads, c.key_dim}));
      kv.k = memory.back().view;
      if (c.latent) {
        kv.v = kv.k;
        kv.v.shape[3] = c.value_dim;
      } else {
        memory.push_back(backend.allocate_kv(c.type, {blocks, c.block_size, c.kv_heads, c.value_dim}));
        kv.v = memory.back().view;
      }
      if (c.type != DType::I8) return;
      memory.push_back(backend.allocate(DType::F32, {blocks, c.block_size, c.kv_heads}));
      kv.k_scales = memory.back().view;
      memory.push_back(backend.allocate(DType::F32, {blocks, c.block_size, c.kv_heads}));
      kv.v_scales = memory.back().view;
    };
    memory_.clear();
    make(ref(), host_kv_, memory_);
    make(gpu(), device_kv_, memory_);
  }

  void replay(const SmallLayer& layer);

  // Sequence s owns blocks 1 + s, 1 + s + kSequences, ...; those the window has left behind are given back.
  Batch batch(const Case& c, std::vector<std::pair<int, int>> ranges) const {
    Batch b;
    for (size_t s = 0; s < ranges.size(); ++s) {
      const auto [begin, end] = ranges[s];
      for (int p = begin; p < end; ++p) b.positions.push_back(p);
      b.query_begin.push_back(static_cast<int32_t>(b.positions.size()));
      const int kept = c.window > 0 ? std::max(0, begin - c.window + 1) / c.block_size : 0;
      for (int i = 0; i < width_; ++i)
        b.blocks.push_back(i < kept ? -1 : static_cast<int32_t>(1 + s + static_cast<size_t>(i) * kSequences));
    }
    return b;
  }

  double step(const Case& c, Batch b, const AttentionShape& host_shape, const AttentionShape& device_shape) {
    const RaggedBatch view = b.view();
    const int64_t n = view.tokens();
    const Both q = random(n, int64_t{c.heads} * c.key_dim), k = random(n, int64_t{c.kv_heads} * c.key_dim);
    const Both v = random(n, int64_t{c.kv_heads} * c.value_dim);
    Both out = zeros(n, int64_t{c.heads} * c.value_dim);
    gpu().begin(view);
    ref().write_kv(host_kv_, heads_of(k.host, c.kv_heads),
                   c.latent ? TensorView{} : heads_of(v.host, c.kv_heads), view);
    gpu().write_kv(device_kv_, heads_of(k.device, c.kv_heads),
                   c.latent ? TensorView{} : heads_of(v.device, c.kv_heads), view);
    ref().attend(heads_of(out.host, c.heads), heads_of(q.host, c.heads), host_kv_, view, host_shape);
    gpu().attend(heads_of(out.device, c.heads), heads_of(q.device, c.heads), device_kv_, view, device_shape);
    return error(out.host, out.device);
  }

  void run(const Case& c) {
    SCOPED_TRACE(::testing::Message()
                 << "heads " << c.heads << "/" << c.kv_heads << " dims " << c.key_dim << "/" << c.value_dim
                 << " " << name(c.type) << " block " << c.block_size << " window " << c.window << " softcap "
                 << c.softcap << " sinks " << c.sinks << " alibi " << c.alibi);
    make_cache(c);
    const Both sinks = vector(c.heads), slopes = vector(c.heads, 0.05f);
    AttentionShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.key_dim = c.key_dim;
    shape.value_dim = c.value_dim;
    shape.scale = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    shape.window = c.window;
    shape.chunked = c.chunked;
    shape.softcap = c.softcap;
    AttentionShape device_shape = shape;
    if (c.sinks) shape.sinks = sinks.host, device_shape.sinks = sinks.device;
    if (c.alibi) shape.alibi = slopes.host, device_shape.alibi = slopes.device;
    std::vector<std::vector<std::pair<int, int>>> steps = {
        {{0, 40}, {0, 1}, {0, 17}},        {{40, 41}, {1, 100}, {17, 30}},
        {{41, 42}, {100, 101}, {30, 31}},  {{42, 43}, {101, 102}, {31, 34}},
        {{43, 144}, {102, 149}, {34, 35}}, {{144, 145}, {149, 150}, {35, 36}}};
    // The reference rotates rows before it rounds them to bytes, the device does not: both err, each in its own way.
    const double most = c.type == DType::F32 ? tolerance() : c.type == DType::I8 ? 3e-2 : kTolerance;
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_LT(step(c, batch(c, steps[i]), shape, device_shape), most) << "step " << i;
  }

  enum class Lengths { Random, Alike };
  // `count` sequences with a cache full of numbers.
  void single_tokens(int dim, int block_size, int heads, int kv_heads, int count,
                     Lengths lengths = Lengths::Random, int window = 0, float softcap = 0.0f) {
    constexpr int kLongest = 330;
    const int width = (kLongest + block_size - 1) / block_size;
    Batch b;
    for (int s = 0; s < count; ++s) {
      b.positions.push_back(s == 0 || lengths == Lengths::Alike ? kLongest - 1 : below(kLongest));
      b.query_begin.push_back(s + 1);
      for (int i = 0; i < width; ++i) b.blocks.push_back((s + i * count) % (count * width));
    }
    AttentionShape shape;
    shape.heads = heads, shape.kv_heads = kv_heads, shape.key_dim = shape.value_dim = dim, shape.scale = 0.1f;
    shape.window = window, shape.softcap = softcap;
    single_tokens(b, int64_t{count} * width, block_size, shape);
  }

  // One new token for each sequence of `b`, over so many blocks of numbers.
  void single_tokens(Batch& b, int64_t blocks, int block_size, const AttentionShape& shape) {
    const int heads = shape.heads, kv_heads = shape.kv_heads, dim = shape.key_dim;
    const auto count = static_cast<int64_t>(b.positions.size());
    Both k = random(blocks * block_size, int64_t{kv_heads} * dim),
         v = random(blocks * block_size, int64_t{kv_heads} * dim);
    Both new_k = random(count, int64_t{kv_heads} * dim), new_v = random(count, int64_t{kv_heads} * dim);
    Both q = random(count, int64_t{heads} * dim), out = zeros(count, int64_t{heads} * dim);
    const auto cache = [&](const Both& both, bool host) {
      const TensorView& view = host ? both.host : both.device;
      return TensorView::contiguous(view.data, view.dtype, {blocks, kv_heads, block_size, dim}, view.device)
          .swapped(1, 2);
    };
    const PagedKv host_kv{cache(k, true), cache(v, true), {}, {}, 0};
    const PagedKv device_kv{cache(k, false), cache(v, false), {}, {}, 0};
    const RaggedBatch view = b.view();
    ref().write_kv(host_kv, heads_of(new_k.host, kv_heads), heads_of(new_v.host, kv_heads), view);
    ref().attend(heads_of(out.host, heads), heads_of(q.host, heads), host_kv, view, shape);
    for (int run = 0; run < 3; ++run) {
      gpu().begin(view);
      gpu().write_kv(device_kv, heads_of(new_k.device, kv_heads), heads_of(new_v.device, kv_heads), view);
      gpu().attend(heads_of(out.device, heads), heads_of(q.device, heads), device_kv, view, shape);
      EXPECT_LT(error(out.host, out.device), tolerance()) << "run " << run;
    }
  }

  // The same over a cache in fp8, which both sides fill.
  void single_tokens_in_fp8(int block_size, int heads, int kv_heads, int count) {
    constexpr int kLongest = 330, kDim = 128;
    const int width = (kLongest + block_size - 1) / block_size;
    Batch before, b;
    for (int s = 0; s < count; ++s) {
      const int length = s == 0 ? kLongest : 1 + below(kLongest);
      for (int p = 0; p + 1 < length; ++p) before.positions.push_back(p);
      before.query_begin.push_back(static_cast<int32_t>(before.positions.size()));
      b.positions.push_back(length - 1);
      b.query_begin.push_back(s + 1);
      for (int i = 0; i < width; ++i) b.blocks.push_back((s + i * count) % (count * width));
    }
    before.blocks = b.blocks;
    PagedKv host_kv, device_kv;
    std::vector<kernels::Memory> memory;
    const auto allocate = [&](kernels::Backend& backend) {
      memory.push_back(
          backend.allocate_kv(DType::F8_E4M3, {int64_t{count} * width, block_size, kv_heads, kDim}));
      return memory.back().view;
    };
    host_kv.k = allocate(ref()), host_kv.v = allocate(ref());
    device_kv.k = allocate(gpu()), device_kv.v = allocate(gpu());
    AttentionShape shape;
    shape.heads = heads, shape.kv_heads = kv_heads, shape.key_dim = shape.value_dim = kDim;
    shape.scale = 0.1f;
    for (Batch* step : {&before, &b}) {
      const RaggedBatch view = step->view();
      const Both k = random(view.tokens(), int64_t{kv_heads} * kDim),
                 v = random(view.tokens(), int64_t{kv_heads} * kDim);
      gpu().begin(view);
      ref().write_kv(host_kv, heads_of(k.host, kv_heads), heads_of(v.host, kv_heads), view);
      gpu().write_kv(device_kv, heads_of(k.device, kv_heads), heads_of(v.device, kv_heads), view);
      if (step == &before) continue;
      const Both q = random(count, int64_t{heads} * kDim), out = zeros(count, int64_t{heads} * kDim);
      ref().attend(heads_of(out.host, heads), heads_of(q.host, heads), host_kv, view, shape);
      gpu().attend(heads_of(out.device, heads), heads_of(q.device, heads), device_kv, view, shape);
      EXPECT_LT(error(out.host, out.device), kTolerance);
    }
  }

  int width_ = 0;
  std::vector<kernels::Memory> memory_;
  PagedKv host_kv_, device_kv_;
};

TEST_P(AttentionTest, CommonShapes) {
  for (int dim : {64, 128, 256}) {
    run({8, 2, dim, dim});
    run({4, 4, dim, dim, DType::BF16, 64});
    run({8, 1, dim, dim, DType::BF16, 7, 20});
    run({8, 2, dim, dim, DType::BF16, 16, 50, 3.0f});
    run({8, 2, dim, dim, DType::BF16, 16, 0, 3.0f});
  }
}

// Enough new tokens per sequence for the kernel of long runs, from the start and behind a context.
TEST_P(AttentionTest, LongRuns) {
  const std::tuple<int, int, int, int> shapes[] = {{8, 2, 128, 16}, {8, 2, 128, 64}, {8, 2, 128, 7},
                                                   {8, 2, 256, 64}, {6, 2, 256, 16}, {5, 1, 256, 7}};
  for (const auto& [heads, kv_heads, dim, block_size] : shapes) {
    const Case c{heads, kv_heads, dim, dim, DType::BF16, block_size};
    make_cache(c);
    AttentionShape shape;
    shape.heads = heads, shape.kv_heads = kv_heads, shape.key_dim = shape.value_dim = dim;
    shape.scale = 0.09f;
    const std::vector<std::vector<std::pair<int, int>>> steps = {
        {{0, 150}},           {{0, 150}, {0, 130}, {0, 140}}, {{0, 10}, {0, 3}},
        {{10, 11}, {3, 131}}, {{11, 150}, {131, 132}},        {{149, 150}, {131, 132}, {0, 150}}};
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_LT(step(c, batch(c, steps[i]), shape, shape), kTolerance)
          << "heads " << heads << "/" << kv_heads << " of " << dim << " block " << block_size << " step "
          << i;
  }
}

// Sequences of very different lengths, one new token each: heads are cut anywhere.
TEST_P(AttentionTest, SingleTokensOfManySequences) {
  for (int dim : {64, 128, 256}) {
    for (int block_size : {16, 32, 64}) {
      for (auto [heads, kv_heads] : {std::pair{8, 2}, {3, 3}, {8, 1}, {2, 1}, {16, 1}}) {
        for (int count : {1, 7, 23}) {
          SCOPED_TRACE(::testing::Message() << "dim " << dim << " block " << block_size << " heads " << heads
                                            << "/" << kv_heads << " sequences " << count);
          single_tokens(dim, block_size, heads, kv_heads, count);
        }
      }
    }
  }
}

// Sequences of one length, as many as leave heads whole on a device of 132 multiprocessors.
TEST_P(AttentionTest, SingleTokensOfSequencesAlike) {
  single_tokens(128, 64, 8, 2, 130, Lengths::Alike);
  single_tokens(64, 16, 8, 2, 132, Lengths::Alike);
  single_tokens(256, 64, 4, 2, 66, Lengths::Alike);
}

// So many that every block has some dozen units of keys.
TEST_P(AttentionTest, SingleTokensOfVeryManySequences) {
  single_tokens(128, 64, 8, 2, 300);
  single_tokens(128, 16, 8, 2, 300, Lengths::Random, 200, 3.0f);
  single_tokens(64, 32, 8, 2, 300, Lengths::Random, 200);
  single_tokens(256, 64, 4, 2, 300);
  single_tokens(256, 16, 8, 1, 140, Lengths::Random, 200, 3.0f);
}

// So many and so long that some units are kept back, for the multiprocessors that are done first, on a device of up to 138:
// 26 units of each of 1,024 sequences. All but the last block are the same for all.
TEST_P(AttentionTest, SingleTokensOfManyLongSequences) {
  constexpr int kCount = 1024, kBlock = 64, kAlike = 25;
  Batch b;
  for (int s = 0; s < kCount; ++s) {
    b.positions.push_back(kAlike * kBlock + below(kBlock));
    b.query_begin.push_back(s + 1);
    for (int i = 0; i < kAlike; ++i) b.blocks.push_back(i);
    b.blocks.push_back(kAlike + s);
  }
  AttentionShape shape;
  shape.heads = 2, shape.kv_heads = 1, shape.key_dim = shape.value_dim = 128, shape.scale = 0.1f;
  single_tokens(b, kAlike + kCount, kBlock, shape);
}

TEST_P(AttentionTest, CachesInFp8) {
  const DType type = DType::F8_E4M3;
  for (int block_size : {16, 32, 64}) {
    run({8, 2, 128, 128, type, block_size});
    run({8, 1, 128, 128, type, block_size, 50, 3.0f});
    run({3, 3, 128, 128, type, block_size, 0, 0.0f, true, true});
  }
  run({8, 2, 64, 64, type, 16});
  run({8, 1, 576, 512, type, 16, 0, 0.0f, false, false, true});
  single_tokens_in_fp8(16, 8, 2, 7);
  single_tokens_in_fp8(64, 8, 1, 23);
  single_tokens_in_fp8(64, 8, 2, 400);
}

TEST_P(AttentionTest, EveryOtherShape) {
  run({4, 2, 80, 80});
  run({4, 2, 96, 64});
  run({8, 2, 64, 64, DType::BF16, 16, 0, 0.0f, true, false});
  run({8, 2, 64, 64, DType::BF16, 16, 30, 0.0f, true, false});
  run({8, 2, 128, 128, DType::BF16, 16, 0, 0.0f, false, true});
  run({8, 1, 576, 512, DType::BF16, 16, 0, 0.0f, false, false, true});
  run({8, 2, 64, 64, DType::BF16, 16, 30, 0.0f, false, false, false, true});
  for (DType type : {DType::F32, DType::F16, DType::I8}) {
    run({8, 2, 64, 64, type, 16, 48, 0.0f, false, false, false, true});
    run({8, 2, 64, 64, type});
    run({8, 2, 128, 128, type, 16, 40, 2.0f, true, true});
  }
}

// Sizes and groups that other kernels do not take: whole prompts, rows of several tiles, single tokens whose keys are split.
TEST_P(AttentionTest, EveryHeadSizeAndGroup) {
  for (auto [dim, heads, kv_heads] :
       {std::tuple{8, 8, 2}, {40, 5, 1}, {80, 7, 1}, {96, 12, 1}, {112, 16, 1}, {192, 6, 1}, {256, 3, 3}}) {
    run({heads, kv_heads, dim, dim, DType::BF16, 16, 0, 0.0f, dim % 16 == 0, false});
    run({heads, kv_heads, dim, dim, DType::BF16, 7, 70, 3.0f, dim % 32 == 0, dim % 16 == 0});
  }
  for (DType type : {DType::F8_E4M3, DType::I8}) {
    run({8, 2, 80, 80, type});
    run({8, 2, 192, 128, type, 16, 0, 0.0f, true, false});
  }
  for (int dim : {80, 192})
    for (int count : {1, 23}) single_tokens(dim, 16, 12, 2, count);
}

TEST_P(AttentionTest, RopeBothWays) {
  for (auto style : {kernels::RopeStyle::NeoX, kernels::RopeStyle::GptJ}) {
    Both x = random(4, 3 * 64), frequencies = vector(3 * 24);
    Both angles{HostTensor::make(DType::F32, {4, 24, 2}), gpu().allocate(DType::F32, {4, 24, 2}), {}, {}};
    Batch b;
    b.positions = {5, 6, 90000, 90001};
    b.query_begin = {0, 2, 4};
    b.blocks = {0, 0};
    b.rope_lengths = {7, 7, 90001, 90002};
    const RaggedBatch view = b.view();
    gpu().begin(view);
    ref().rope_angles(angles.host_memory.view, view, rope_table(frequencies.host, 24, 90000));
    gpu().rope_angles(angles.device_memory.view, view, rope_table(frequencies.device, 24, 90000));
    EXPECT_LT(error(angles.host_memory.view, angles.device_memory.view), 1e-6);
    ref().rope(heads_of(x.host, 3), angles.host_memory.view, style);
    gpu().rope(heads_of(x.device, 3), angles.device_memory.view, style);
    EXPECT_LT(error(x.host, x.device), tolerance());
  }
}

TEST_P(AttentionTest, CopiedBlocksReadAlike) {
  const Case c{4, 2, 64, 64};
  make_cache(c);
  AttentionShape shape;
  shape.heads = 4, shape.kv_heads = 2, shape.key_dim = shape.value_dim = 64, shape.scale = 0.125f;
  step(c, batch(c, {{0, 16}}), shape, shape);
  const std::vector<std::pair<BlockId, BlockId>> moves{{BlockId{1}, BlockId{4}}};
  ref().copy_blocks(host_kv_, moves);
  gpu().copy_blocks(device_kv_, moves);
  Batch b = batch(c, {{16, 17}});
  b.blocks[0] = 4;
  b.blocks[1] = 7;
  EXPECT_LT(step(c, b, shape, shape), kTolerance);
}

TEST_P(AttentionTest, RotateAndStoreInOne) {
  for (auto style : {kernels::RopeStyle::NeoX, kernels::RopeStyle::GptJ}) {
    for (auto [dim, type] : {std::pair{16, DType::BF16},
                             {40, DType::BF16},
                             {64, DType::BF16},
                             {128, DType::BF16},
                             {64, DType::F8_E4M3},
                             {128, DType::F8_E4M3}}) {
      const Case c{4, 2, dim, dim, type};
      make_cache(c);
      Batch b = batch(c, {{0, 20}, {0, 1}, {0, 33}});
      const RaggedBatch view = b.view();
      const int64_t n = view.tokens();
      Both x = random(n, 8 * dim), frequencies = vector(dim / 2), out = zeros(n, 4 * dim);
      Both angles{
          HostTensor::make(DType::F32, {n, dim / 2, 2}), gpu().allocate(DType::F32, {n, dim / 2, 2}), {}, {}};
      AttentionShape shape;
      shape.heads = 4, shape.kv_heads = 2, shape.key_dim = shape.value_dim = dim, shape.scale = 0.1f;
      const auto run_on = [&](kernels::Backend& backend, bool host) {
        const TensorView all = host ? x.host : x.device;
        const TensorView turn = host ? angles.host_memory.view : angles.device_memory.view;
        const TensorView q = all.columns_as_heads(0, 4, dim), k = all.columns_as_heads(4 * dim, 2, dim);
        const PagedKv& kv = host ? host_kv_ : device_kv_;
        backend.begin(view);
        backend.rope_angles(turn, view, rope_table(host ? frequencies.host : frequencies.device, dim / 2));
        backend.rope_write_kv(kv, {q, k, all.columns_as_heads(6 * dim, 2, dim)}, turn, style, view);
        backend.attend(heads_of(host ? out.host : out.device, 4), q, kv, view, shape);
      };
      run_on(ref(), true);
      run_on(gpu(), false);
      EXPECT_LT(error(x.host.columns(0, 4 * dim), x.device.columns(0, 4 * dim)), tolerance()) << dim;
      // A key is rounded to bf16 on its way to fp8, so that some are rounded to the neighbour.
      EXPECT_LT(error(out.host, out.device), type == DType::BF16 ? kTolerance : 3e-2) << dim;
    }
  }
}

// A small layer as a recorded step: decode goes on for many steps, one graph serves them all. With matrices in units the
// GEMM of queries, keys and values rotates and stores them, and that of one token norms it.
TEST_P(AttentionTest, ReplayedStepsMatchDirectOnes) {
  for (const SmallLayer& layer :
       {SmallLayer{DType::BF16, 3}, SmallLayer{DType::BF16, 1}, SmallLayer{DType::Q4_K, 1, DType::BF16, true},
        SmallLayer{DType::Q4_K, 3}, SmallLayer{DType::Q8_0, 8}, SmallLayer{DType::Q4_K, 2, DType::F8_E4M3},
        SmallLayer{DType::BF16, kSequences}}) {
    SCOPED_TRACE(layer);
    replay(layer);
  }
}

void AttentionTest::replay(const SmallLayer& layer) {
  const Case c{8, 2, 128, 128, layer.kv};
  make_cache(c);
  const int n = layer.sequences;
  AttentionShape shape;
  shape.heads = 8, shape.kv_heads = 2, shape.key_dim = shape.value_dim = 128, shape.scale = 3e-4f;
  const BothWeight table = weight({DType::BF16}, 64, 256, false),
                   qkv = weight({layer.type}, 12 * 128, 256, layer.bias);
  const BothWeight output = weight({layer.type}, 256, 8 * 128, false);
  const Both gain = vector(256);
  Both x = zeros(n, 256), normed = zeros(n, 256), wide = zeros(n, 12 * 128), mixed = zeros(n, 8 * 128),
       branch = zeros(n, 256);
  Both angles{HostTensor::make(DType::F32, {n, 64, 2}), gpu().allocate(DType::F32, {n, 64, 2}), {}, {}};
  Both frequencies = vector(2 * 64, 0.1f);
  const int before = gpu().graphs();
  for (int position = 0; position < 100; ++position) {
    std::vector<std::pair<int, int>> sequences;
    for (int s = 0; s < n; ++s) sequences.emplace_back(position / (1 + s / 2), position / (1 + s / 2) + 1);
    Batch b = batch(c, sequences);
    for (const int32_t at : b.positions)
      b.rope_lengths.push_back(at + 1);  // one row or the other, in one graph
    const RaggedBatch view = b.view();
    std::vector<int32_t> ids;
    for (int s = 0; s < n; ++s) ids.push_back(below(64));
    const auto run_on = [&](kernels::Backend& backend, bool host) {
      const auto side = [&](const Both& both) { return host ? both.host : both.device; };
      const TensorView turn = host ? angles.host_memory.view : angles.device_memory.view;
      backend.begin(view);
      backend.embed(side(x), host ? table.host : table.device, ids);
      backend.rope_angles(turn, view, rope_table(side(frequencies), 64, 40));
      backend.rms_norm(side(normed), side(x), side(gain), 1e-5f);
      backend.matmul(side(wide), side(normed), host ? qkv.host : qkv.device);
      const TensorView q = side(wide).columns_as_heads(0, 8, 128),
                       k = side(wide).columns_as_heads(1024, 2, 128);
      const TensorView v = side(wide).columns_as_heads(1280, 2, 128);
      const PagedKv& kv = host ? host_kv_ : device_kv_;
      backend.rope_write_kv(kv, {q, k, v}, turn, kernels::RopeStyle::NeoX, view);
      backend.attend(heads_of(side(mixed), 8), q, kv, view, shape);
      backend.matmul_add_rms_norm(side(normed), {side(x), side(branch)},
                                  {side(mixed), host ? &output.host : &output.device}, {side(gain), 1e-5f});
    };
    run_on(ref(), true);
    gpu().run_step([&] { run_on(gpu(), false); });
    const double most = layer.kv == DType::F8_E4M3 ? 6e-2 : 2 * kTolerance;
    ASSERT_LT(error(x.host, x.device), most) << "position " << position;
    ASSERT_LT(error(wide.host.columns(0, 8 * 128), wide.device.columns(0, 8 * 128)), 2 * kTolerance)
        << "position " << position;
  }
  EXPECT_EQ(gpu().graphs() - before, 1);
}

INSTANTIATE_TEST_SUITE_P(Activations, AttentionTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
