// What the tests of a launch of all layers share: layers with random weights, and steps in three ways: in one launch, by the
// back-end's other operations, and by those with f32 activations and an f32 cache, which both others are measured by.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/head_norm.h"
#include "kernels/layer_stack.h"
#include "tensor/half.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {

using kernels::DenseLayer;
using kernels::Memory;
using kernels::PagedKv;
using kernels::RaggedBatch;

struct StackCase {
  int heads, kv_heads, head_dim;
  int64_t dim, inner;
  bool normed = false;
  int block_size = 64;
};

// How a step's layers are run, and which of the caches is theirs.
enum Way : int { kApart, kWhole, kExact };

// Layers with random weights and caches that hold the same.
class Layers {
 public:
  struct Layer {
    BothWeight qkv, out, gate_up, down;
    Both mixer_gain, ffn_gain, q_gain, k_gain;
    kernels::Weight exact[4];  // the four, for f32 activations
    Memory caches[3][2];       // of each way, keys and values: [blocks, kv_heads, block_size, head_dim]
  };
  StackCase c;
  int64_t blocks = 0;
  std::vector<Layer> layers;

  PagedKv kv(size_t layer, Way way) const {
    const auto& both = layers[layer].caches[way];
    return {both[0].view.swapped(1, 2), both[1].view.swapped(1, 2), {}, {}, 0};
  }
  kernels::AttentionShape shape() const {
    kernels::AttentionShape shape;
    shape.heads = c.heads, shape.kv_heads = c.kv_heads;
    shape.key_dim = shape.value_dim = c.head_dim;
    shape.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    return shape;
  }
};

// Sequences that run one token each; their blocks are scattered.
struct Tokens {
  std::vector<int32_t> begin{0}, positions, blocks;
  std::vector<RaggedBatch::BlockTable> tables;

  // Of the blocks from the `first` on: as many as there are in `blocks`.
  Tokens(const std::vector<int>& contexts, const Layers& l, int64_t first = 0) {
    const int width = *std::max_element(contexts.begin(), contexts.end()) / l.c.block_size + 1;
    int64_t step = 7;
    while (std::gcd(step, l.blocks) != 1) ++step;
    for (size_t s = 0; s < contexts.size(); ++s) {
      positions.push_back(contexts[s] - 1);
      begin.push_back(static_cast<int32_t>(s) + 1);
      for (int i = 0; i < width; ++i)
        blocks.push_back(
            static_cast<int32_t>((first + static_cast<int64_t>(s) * width + i) * step % l.blocks));
    }
    tables = {{blocks, width}};
  }
  RaggedBatch view() const { return {begin, positions, tables}; }
};

class StackTest : public DeviceTest {
 protected:
  static constexpr float kEps = 1e-5f;

  void SetUp() override {
    DeviceTest::SetUp();
    if (!uses_hopper()) GTEST_SKIP() << "the launch of all layers is sm_90a's";
  }

  static kernels::CudaBackend& exact() { return *device(DType::F32); }

  void fill_caches(Layers::Layer& l, int side, const StackCase& c, int64_t blocks) {
    HostTensor rough = HostTensor::make(DType::BF16, {blocks, c.kv_heads, c.block_size, c.head_dim});
    HostTensor wide = HostTensor::make(DType::F32, {blocks, c.kv_heads, c.block_size, c.head_dim});
    std::vector<uint16_t> sample(1 << 16);
    for (uint16_t& value : sample) value = f32_to_bf16(normal());
    for (int64_t i = 0; i < rough.view.elements(); ++i) {
      const uint16_t value = sample[(static_cast<uint64_t>(i) * 2654435761u >> 11) & 0xffffu];
      rough.view.at<uint16_t>()[i] = value;
      wide.view.at<float>()[i] = bf16_to_f32(value);
    }
    l.caches[kApart][side] = gpu().upload(rough.view);
    l.caches[kWhole][side] = gpu().upload(rough.view);
    l.caches[kExact][side] = exact().upload(wide.view);
  }
  // Rows whose results are as large as what they are multiplied with. With larger ones a token's score for itself would be
  // that of its key's length, in the thousands, and decide which of two values of very different size a head gives: what is
  // rounded otherwise then differs by whole heads now and then.
  BothWeight even_weight(size_t parts, int64_t rows, int64_t cols) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(cols));
    BothWeight both;
    both.host.cols = cols;
    for (size_t i = 0; i < parts; ++i) {
      HostTensor part = HostTensor::make(DType::BF16, {rows, cols});
      for (int64_t k = 0; k < rows * cols; ++k) part.view.at<uint16_t>()[k] = f32_to_bf16(scale * normal());
      both.host.parts.push_back(part.view);
      both.host.rows += rows;
      both.memory.push_back(std::move(part));
    }
    both.device = gpu().prepare(both.host);
    return both;
  }
  // f32 on both sides, near `middle`.
  Both gains(int64_t count, float middle) {
    Both both{HostTensor::make(DType::F32, {count}), {}, {}, {}};
    both.host = both.host_memory.view;
    for (int64_t i = 0; i < count; ++i) both.host.at<float>()[i] = middle * (1.0f + 0.1f * normal());
    both.device_memory = gpu().upload(both.host);
    both.device = both.device_memory.view;
    return both;
  }
  Layers make(const StackCase& c, int count, int64_t blocks) {
    Layers all;
    all.c = c, all.blocks = blocks;
    const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
    for (int i = 0; i < count; ++i) {
      Layers::Layer l;
      l.qkv = even_weight(1, q + 2 * kv, c.dim);
      l.out = even_weight(1, c.dim, q);
      l.gate_up = even_weight(2, c.inner, c.dim);
      l.down = even_weight(1, c.dim, c.inner);
      // Scores of some tokens stand out, so that it matters which keys are seen.
      l.mixer_gain = gains(c.dim, 2.0f), l.ffn_gain = gains(c.dim, 1.0f);
      l.q_gain = gains(c.head_dim, 2.0f), l.k_gain = gains(c.head_dim, 1.0f);
      const BothWeight* const all_four[] = {&l.qkv, &l.out, &l.gate_up, &l.down};
      for (size_t k = 0; k < 4; ++k) l.exact[k] = exact().prepare(all_four[k]->host);
      for (int side = 0; side < 2; ++side) fill_caches(l, side, c, blocks);
      all.layers.push_back(std::move(l));
    }
    return all;
  }
  void run_apart(Way way, const Layers& l, const TensorView& x, const TensorView& angles,
                 const RaggedBatch& batch) {
    kernels::CudaBackend& on = way == kExact ? exact() : gpu();
    const int64_t n = batch.tokens(), q = int64_t{l.c.heads} * l.c.head_dim,
                  width = q + int64_t{2} * l.c.kv_heads * l.c.head_dim;
    const auto room = [&](int64_t columns) {
      memory_.push_back(on.allocate(on.activation_type(), {n, columns}));
      return memory_.back().view;
    };
    const TensorView normed = room(l.c.dim), branch = room(l.c.dim), qkv = room(width), mixed = room(q),
                     wide = room(2 * l.c.inner), inner = room(l.c.inner);
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const Layers::Layer& w = l.layers[i];
      const kernels::Weight rough[] = {w.qkv.device, w.out.device, w.gate_up.device, w.down.device};
      const kernels::Weight* const matrices = way == kExact ? w.exact : rough;
      const PagedKv kv = l.kv(i, way);
      on.rms_norm(normed, x, w.mixer_gain.device, kEps);
      on.matmul(qkv, normed, matrices[0]);
      const kernels::QkvHeads heads{qkv.columns_as_heads(0, l.c.heads, l.c.head_dim),
                                    qkv.columns_as_heads(q, l.c.kv_heads, l.c.head_dim),
                                    qkv.columns_as_heads((q + width) / 2, l.c.kv_heads, l.c.head_dim)};
      const kernels::NormedHeads normed_heads{heads, w.q_gain.device, w.k_gain.device, kEps};
      auto* const one = l.c.normed ? dynamic_cast<kernels::HeadNormDevice*>(&on) : nullptr;
      if (one == nullptr ||
          !one->norm_rope_write_kv(kv, normed_heads, angles, kernels::RopeStyle::NeoX, batch)) {
        if (l.c.normed) {
          on.rms_norm(heads.q, heads.q, w.q_gain.device, kEps);
          on.rms_norm(heads.k, heads.k, w.k_gain.device, kEps);
        }
        on.rope_write_kv(kv, heads, angles, kernels::RopeStyle::NeoX, batch);
      }
      on.attend(mixed.columns_as_heads(0, l.c.heads, l.c.head_dim), heads.q, kv, batch, l.shape());
      on.matmul(branch, mixed, matrices[1]);
      on.add_rms_norm(normed, {x, branch}, {w.ffn_gain.device, kEps});
      on.matmul_gated(inner, wide, normed, matrices[2], kernels::Activation::Silu);
      on.matmul(branch, inner, matrices[3]);
      on.add(x, x, branch, 1.0f);
    }
    on.synchronize();
  }
  bool run_whole(const Layers& l, const TensorView& x, const TensorView& angles, const RaggedBatch& batch) {
    std::vector<DenseLayer> layers;
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const Layers::Layer& w = l.layers[i];
      layers.push_back({&w.qkv.device, &w.out.device, &w.gate_up.device, &w.down.device, w.mixer_gain.device,
                        w.ffn_gain.device, l.c.normed ? w.q_gain.device : TensorView(),
                        l.c.normed ? w.k_gain.device : TensorView(), l.kv(i, kWhole)});
    }
    return dynamic_cast<kernels::LayerStackDevice&>(gpu()).run_layers(x, {layers, l.shape(), l.c.inner, kEps},
                                                                      angles, batch);
  }
  std::vector<float> values(const TensorView& view) {
    HostTensor host = HostTensor::make(DType::F32, {view.elements()});
    const int64_t rows = view.dim(0);
    gpu().download(host.view, TensorView::contiguous(view.data, view.dtype, {rows, view.elements() / rows},
                                                     view.device));
    return {host.view.at<float>(), host.view.at<float>() + view.elements()};
  }
  // Squares of what the ways are apart from the exact one, and of the exact one.
  struct Errors {
    double apart = 0, whole = 0, exact = 0;

    void add(const Errors& other) { apart += other.apart, whole += other.whole, exact += other.exact; }
    static double square(const std::vector<float>& a, const std::vector<float>& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        const double apart = static_cast<double>(a[i]) - b[i];
        sum += apart * apart;
      }
      return sum;
    }
    // Of the way that is tested, relative to what it may be: `factor` times that of the other.
    double excess(double factor) const {
      return std::sqrt(whole / exact) - factor * std::sqrt(apart / exact);
    }
  };
  // One step in each way, the whole one as the engine replays it.
  Errors run_step(const Layers& l, const Tokens& tokens, const Both& start, const kernels::RopeTable& table) {
    const RaggedBatch batch = tokens.view();
    const int64_t n = batch.tokens();
    bool taken = true;
    const auto begin = [&](kernels::CudaBackend& on, const TensorView& angles) {
      on.begin(batch);
      on.rope_angles(angles, batch, table);
    };
    const TensorView angles = angles_.view.rows(0, n), whole = whole_.view.rows(0, n),
                     apart = apart_.view.rows(0, n);
    gpu().run_step([&] {
      begin(gpu(), angles);
      gpu().copy(whole, start.device);
      taken = run_whole(l, whole, angles, batch);
    });
    EXPECT_TRUE(taken) << "tokens " << n << " position " << tokens.positions.front();
    gpu().synchronize();
    begin(gpu(), angles);
    gpu().copy(apart, start.device);
    run_apart(kApart, l, apart, angles, batch);
    const Memory truth = exact().upload(start.host);
    begin(exact(), angles);
    run_apart(kExact, l, truth.view, angles, batch);
    const std::vector<float> right = values(truth.view);
    const std::vector<float> none(right.size());
    memory_.clear();
    return {Errors::square(values(apart), right), Errors::square(values(whole), right),
            Errors::square(right, none)};
  }
  // Of steps of n tokens.
  void make_room(const Layers& l, int64_t n) {
    apart_ = gpu().allocate(DType::BF16, {n, l.c.dim}), whole_ = gpu().allocate(DType::BF16, {n, l.c.dim});
    angles_ = gpu().allocate(DType::F32, {n, l.c.head_dim / 2, 2});
  }
  static kernels::RopeTable table_of(const Both& frequencies) {
    const TensorView row = frequencies.device;
    return {TensorView::contiguous(row.data, DType::F32, {1, row.elements()}, Device::Cuda)};
  }
  // The lengths grow from step to step.
  Errors check(const Layers& l, const std::vector<int>& contexts) {
    const auto n = static_cast<int64_t>(contexts.size());
    const Both start = random(n, l.c.dim), frequencies = vector(l.c.head_dim / 2, 0.2f);
    make_room(l, n);
    const kernels::RopeTable table = table_of(frequencies);
    Errors all;
    std::vector<int> now = contexts;
    for (int turn = 0; turn < 4; ++turn) {
      const Errors errors = run_step(l, Tokens(now, l), start, table);
      EXPECT_LT(errors.excess(1.5), kTolerance / 8)
          << "tokens " << n << " context " << now.front() << " head " << l.c.head_dim;
      all.add(errors);
      for (int& length : now) ++length;
    }
    return all;
  }
  void check_caches(const Layers& l) {
    for (size_t i = 0; i < l.layers.size(); ++i)
      for (int side = 0; side < 2; ++side) {
        const std::vector<float> right = values(l.layers[i].caches[kExact][side].view);
        const std::vector<float> none(right.size());
        const double apart = Errors::square(values(l.layers[i].caches[kApart][side].view), right);
        const double whole = Errors::square(values(l.layers[i].caches[kWhole][side].view), right);
        const double all = Errors::square(right, none);
        EXPECT_LE(std::sqrt(whole / all), 1.25 * std::sqrt(apart / all) + 1e-5) << "cache of layer " << i;
      }
  }

  Memory apart_, whole_, angles_;
  std::vector<Memory> memory_;
};

}  // namespace sluice::cuda_test
