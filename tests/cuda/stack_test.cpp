// All layers in one launch against the same layers made of the back-end's other operations.
#include <cmath>
#include <numeric>

#include "kernels/head_norm.h"
#include "kernels/layer_stack.h"
#include "tensor/half.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

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

// Layers with random weights and two caches that hold the same.
class Layers {
 public:
  struct Layer {
    BothWeight qkv, out, gate_up, down;
    Both mixer_gain, ffn_gain, q_gain, k_gain;
    Memory caches[2][2];  // of each way, keys and values: [blocks, kv_heads, block_size, head_dim]
  };
  StackCase c;
  int64_t blocks = 0;
  std::vector<Layer> layers;

  PagedKv kv(size_t layer, int way) const {
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

  Tokens(const std::vector<int>& contexts, const Layers& l) {
    const int width = *std::max_element(contexts.begin(), contexts.end()) / l.c.block_size + 1;
    int64_t step = 7;
    while (std::gcd(step, l.blocks) != 1) ++step;
    for (size_t s = 0; s < contexts.size(); ++s) {
      positions.push_back(contexts[s] - 1);
      begin.push_back(static_cast<int32_t>(s) + 1);
      for (int i = 0; i < width; ++i)
        blocks.push_back(static_cast<int32_t>((static_cast<int64_t>(s) * width + i) * step % l.blocks));
    }
    tables = {{blocks, width}};
  }
  RaggedBatch view() const { return {begin, positions, tables}; }
};

class StackTest : public DeviceTest {
 protected:
  static constexpr float kEps = 1e-5f;

  Memory cache(const StackCase& c, int64_t blocks) {
    HostTensor host = HostTensor::make(DType::BF16, {blocks, c.kv_heads, c.block_size, c.head_dim});
    std::vector<uint16_t> sample(1 << 16);
    for (uint16_t& value : sample) value = f32_to_bf16(normal());
    for (int64_t i = 0; i < host.view.elements(); ++i)
      host.view.at<uint16_t>()[i] = sample[(static_cast<uint64_t>(i) * 2654435761u >> 11) & 0xffffu];
    return gpu().upload(host.view);
  }
  Layers make(const StackCase& c, int count, int64_t blocks) {
    Layers all;
    all.c = c, all.blocks = blocks;
    const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
    for (int i = 0; i < count; ++i) {
      Layers::Layer l;
      l.qkv = weight({DType::BF16}, q + 2 * kv, c.dim, false);
      l.out = weight({DType::BF16}, c.dim, q, false);
      l.gate_up = weight({DType::BF16, DType::BF16}, c.inner, c.dim, false);
      l.down = weight({DType::BF16}, c.dim, c.inner, false);
      l.mixer_gain = vector(c.dim), l.ffn_gain = vector(c.dim);
      l.q_gain = vector(c.head_dim), l.k_gain = vector(c.head_dim);
      for (int side = 0; side < 2; ++side) {
        l.caches[0][side] = cache(c, blocks);
        l.caches[1][side] = gpu().allocate(DType::BF16, {blocks, c.kv_heads, c.block_size, c.head_dim});
        const auto flat = [&](const Memory& m) {
          return TensorView::contiguous(m.view.data, DType::BF16, {blocks, m.view.elements() / blocks},
                                        m.view.device);
        };
        gpu().copy(flat(l.caches[1][side]), flat(l.caches[0][side]));
      }
      all.layers.push_back(std::move(l));
    }
    return all;
  }
  void run_apart(const Layers& l, const TensorView& x, const TensorView& angles, const RaggedBatch& batch) {
    const int64_t n = batch.tokens(), q = int64_t{l.c.heads} * l.c.head_dim,
                  width = q + int64_t{2} * l.c.kv_heads * l.c.head_dim;
    const auto room = [&](int64_t columns) {
      memory_.push_back(gpu().allocate(DType::BF16, {n, columns}));
      return memory_.back().view;
    };
    const TensorView normed = room(l.c.dim), branch = room(l.c.dim), qkv = room(width), mixed = room(q),
                     wide = room(2 * l.c.inner), inner = room(l.c.inner);
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const Layers::Layer& w = l.layers[i];
      const PagedKv kv = l.kv(i, 0);
      gpu().rms_norm(normed, x, w.mixer_gain.device, kEps);
      gpu().matmul(qkv, normed, w.qkv.device);
      const kernels::QkvHeads heads{qkv.columns_as_heads(0, l.c.heads, l.c.head_dim),
                                    qkv.columns_as_heads(q, l.c.kv_heads, l.c.head_dim),
                                    qkv.columns_as_heads((q + width) / 2, l.c.kv_heads, l.c.head_dim)};
      if (l.c.normed) {
        gpu().rms_norm(heads.q, heads.q, w.q_gain.device, kEps);
        gpu().rms_norm(heads.k, heads.k, w.k_gain.device, kEps);
      }
      gpu().rope_write_kv(kv, heads, angles, kernels::RopeStyle::NeoX, batch);
      gpu().attend(mixed.columns_as_heads(0, l.c.heads, l.c.head_dim), heads.q, kv, batch, l.shape());
      gpu().matmul(branch, mixed, w.out.device);
      gpu().add_rms_norm(normed, {x, branch}, {w.ffn_gain.device, kEps});
      gpu().matmul_gated(inner, wide, normed, w.gate_up.device, kernels::Activation::Silu);
      gpu().matmul(branch, inner, w.down.device);
      gpu().add(x, x, branch, 1.0f);
    }
  }
  bool run_whole(const Layers& l, const TensorView& x, const TensorView& angles, const RaggedBatch& batch) {
    std::vector<DenseLayer> layers;
    for (size_t i = 0; i < l.layers.size(); ++i) {
      const Layers::Layer& w = l.layers[i];
      layers.push_back({&w.qkv.device, &w.out.device, &w.gate_up.device, &w.down.device, w.mixer_gain.device,
                        w.ffn_gain.device, l.c.normed ? w.q_gain.device : TensorView(),
                        l.c.normed ? w.k_gain.device : TensorView(), l.kv(i, 1)});
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
  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double apart = 0, whole = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      apart += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
      whole += static_cast<double>(b[i]) * b[i];
    }
    return whole > 0 ? std::sqrt(apart / whole) : std::sqrt(apart);
  }
  // A step as the engine replays it, several times; the first contents go on to the next ones' lengths.
  void check(const Layers& l, const std::vector<int>& contexts) {
    const auto n = static_cast<int64_t>(contexts.size());
    const Both start = random(n, l.c.dim), frequencies = vector(l.c.head_dim / 2, 0.2f);
    const Memory apart = gpu().allocate(DType::BF16, {n, l.c.dim}),
                 whole = gpu().allocate(DType::BF16, {n, l.c.dim}),
                 angles = gpu().allocate(DType::F32, {n, l.c.head_dim / 2, 2});
    const kernels::RopeTable table{
        TensorView::contiguous(frequencies.device.data, DType::F32, {1, l.c.head_dim / 2}, Device::Cuda)};
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<int> now = contexts;
      for (int& length : now) length += turn;
      const Tokens tokens(now, l);
      const RaggedBatch batch = tokens.view();
      bool taken = true;
      gpu().run_step([&] {
        gpu().begin(batch);
        gpu().rope_angles(angles.view, batch, table);
        gpu().copy(whole.view, start.device);
        taken = run_whole(l, whole.view, angles.view, batch);
      });
      ASSERT_TRUE(taken) << "tokens " << n << " context " << contexts.front();
      gpu().begin(batch);
      gpu().rope_angles(angles.view, batch, table);
      gpu().copy(apart.view, start.device);
      run_apart(l, apart.view, angles.view, batch);
      const double limit = 1.5 * kTolerance;
      EXPECT_LT(distance(values(whole.view), values(apart.view)), limit)
          << "tokens " << n << " context " << contexts.front() << " head " << l.c.head_dim << " turn "
          << turn;
      memory_.clear();
    }
    for (size_t i = 0; i < l.layers.size(); ++i)
      for (int side = 0; side < 2; ++side)
        EXPECT_LT(
            distance(values(l.layers[i].caches[1][side].view), values(l.layers[i].caches[0][side].view)),
            kTolerance)
            << "cache of layer " << i;
  }

  std::vector<Memory> memory_;
};

TEST_F(StackTest, IsWhatItsLayersAre) {
  for (const StackCase& c : {StackCase{16, 8, 128, 1024, 3072, true}, StackCase{32, 8, 64, 2048, 4608},
                             StackCase{16, 2, 128, 1536, 4864, false, 128}}) {
    const Layers layers = make(c, 2, 400 * 64 / c.block_size + 1);
    for (const int n : {1, 2, 5, 8})
      for (const int context : {1, 17, 576}) check(layers, std::vector<int>(static_cast<size_t>(n), context));
    check(layers, {5000});
    check(layers, {5000, 1});
    check(layers, {3, 129, 2500, 640, 1000, 63, 64, 65});
  }
}

TEST_F(StackTest, LeavesTheRestToOthers) {
  const StackCase plain{16, 8, 128, 1024, 3072};
  const auto taken = [&](const StackCase& c, const std::vector<int>& contexts) {
    const Layers l = make(c, 1, 700 * 64 / c.block_size + 1);
    const Tokens tokens(contexts, l);
    const auto n = static_cast<int64_t>(contexts.size());
    const Memory x = gpu().allocate(DType::BF16, {n, c.dim}),
                 angles = gpu().allocate(DType::F32, {n, c.head_dim / 2, 2});
    const RaggedBatch batch = tokens.view();
    gpu().begin(batch);
    return run_whole(l, x.view, angles.view, batch);
  };
  EXPECT_TRUE(taken(plain, {100}));
  EXPECT_FALSE(taken(plain, std::vector<int>(9, 100))) << "more tokens than it takes";
  EXPECT_FALSE(taken(plain, std::vector<int>(8, 5000))) << "more context than pays";
  EXPECT_FALSE(taken({32, 8, 128, 4096, 2176}, {100})) << "layers so large that launches do not matter";
  EXPECT_FALSE(taken({12, 4, 96, 1152, 3072}, {100})) << "heads of 96";
  EXPECT_FALSE(taken({16, 8, 128, 5120, 1024}, {100})) << "rows of 5,120";
  EXPECT_FALSE(taken({16, 8, 128, 1024, 3072, false, 16}, {100})) << "blocks of 16";
}

}  // namespace
}  // namespace sluice::cuda_test
