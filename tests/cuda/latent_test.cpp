// Latent attention of the CUDA back-end in its own operations against the reference's composition of plain ones: prompts,
// prompts in chunks, single tokens and both in one step, over short and long contexts.
#include <cmath>

#include "kernels/latent.h"
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::PagedKv;
using kernels::RaggedBatch;

constexpr int kLatent = 512, kNope = 128, kRope = 64, kValue = 128, kKey = kLatent + kRope,
              kQuery = kNope + kRope;

struct Range {
  int begin, end;  // positions that a step runs
};

// A step as RaggedBatch wants it.
struct Step {
  std::vector<int32_t> query_begin{0}, positions, blocks;
  std::vector<RaggedBatch::BlockTable> tables;
  RaggedBatch view() {
    tables = {{blocks, static_cast<int>(blocks.size() / (query_begin.size() - 1))}};
    return {query_begin, positions, tables, {}};
  }
};

TensorView part_of(TensorView heads, int64_t begin, int64_t width) {
  heads.shape[2] = width;
  heads.data = static_cast<std::byte*>(heads.data) + row_bytes(heads.dtype, begin);
  return heads;
}

class LatentTest : public DeviceTest {
 protected:
  static constexpr int kBlock = 64;

  void make(int heads, int sequences, int length) {
    heads_ = heads;
    sequences_ = sequences;
    width_ = (length + kBlock - 1) / kBlock;
    memory_.clear();
    const auto cache = [&](kernels::Backend& backend) {
      memory_.push_back(backend.allocate_kv(DType::BF16, {int64_t{sequences} * width_ + 1, kBlock, 1, kKey}));
      PagedKv kv{};
      kv.k = kv.v = memory_.back().view;
      kv.v.shape[3] = kLatent;
      return kv;
    };
    host_kv_ = cache(ref());
    device_kv_ = cache(gpu());
    listed_ = true;
    weights_.clear();
    host_key_.clear(), host_value_.clear(), device_key_.clear(), device_value_.clear();
    for (int h = 0; h < heads; ++h) {
      weights_.push_back(weight({DType::BF16}, kLatent, kNope, false));
      host_key_.push_back(weights_.back().host);
      device_key_.push_back(weights_.back().device);
      weights_.push_back(weight({DType::BF16}, kValue, kLatent, false));
      host_value_.push_back(weights_.back().host);
      device_value_.push_back(weights_.back().device);
    }
  }

  Step step_of(const std::vector<Range>& ranges) const {
    Step b;
    for (size_t s = 0; s < ranges.size(); ++s) {
      for (int p = ranges[s].begin; p < ranges[s].end; ++p) b.positions.push_back(p);
      b.query_begin.push_back(static_cast<int32_t>(b.positions.size()));
      for (int i = 0; i < width_; ++i)
        b.blocks.push_back(
            static_cast<int32_t>(1 + s + static_cast<size_t>(i) * static_cast<size_t>(sequences_)));
    }
    return b;
  }

  // Stores the step's latents and attends; the error of what comes out.
  double run(const std::vector<Range>& ranges, bool write_in_one = true) {
    Step step = step_of(ranges);
    const RaggedBatch batch = step.view();
    const int64_t n = batch.tokens();
    const Both latent = random(n, kKey), query = random(n, int64_t{heads_} * kQuery, 0.3f);
    const Both gain = vector(kLatent), frequencies = vector(kRope / 2, 0.1f);
    HostTensor angles = HostTensor::make(DType::F32, {n, kRope / 2, 2});
    const kernels::Memory device_angles = gpu().allocate(DType::F32, {n, kRope / 2, 2});
    const auto table = [&](const TensorView& f) {
      return kernels::RopeTable{TensorView::contiguous(f.data, DType::F32, {1, kRope / 2}, f.device)};
    };
    gpu().begin(batch);
    ref().rope_angles(angles.view, batch, table(frequencies.host));
    gpu().rope_angles(device_angles.view, batch, table(frequencies.device));
    constexpr float kEps = 1e-6f;
    const auto style = kernels::RopeStyle::GptJ;
    compose_write(ref(), host_kv_, {latent.host, heads_of(query.host, heads_), angles.view, style},
                  {gain.host, kEps}, batch);
    const kernels::LatentRows rows{latent.device, heads_of(query.device, heads_), device_angles.view, style};
    auto& device = dynamic_cast<kernels::LatentDevice&>(gpu());
    if (write_in_one) {
      EXPECT_TRUE(device.write_latent(device_kv_, rows, {gain.device, kEps}, batch));
    } else {
      compose_write(gpu(), device_kv_, rows, {gain.device, kEps}, batch);
    }
    Both out = zeros(n, int64_t{heads_} * kValue);
    attend_host(out.host, heads_of(query.host, heads_), batch);
    const Both absorbed = zeros(n, int64_t{heads_} * kKey), mixed = zeros(n, int64_t{heads_} * kLatent);
    const kernels::LatentShape shape{heads_, kLatent, kNope,       kRope,
                                     kValue, kScale,  device_key_, device_value_};
    EXPECT_TRUE(device.attend_latent(
        heads_of(out.device, heads_),
        {heads_of(query.device, heads_), heads_of(absorbed.device, heads_), heads_of(mixed.device, heads_)},
        device_kv_, batch, shape));
    return error(out.host, out.device);
  }

  static void compose_write(kernels::Backend& backend, const PagedKv& kv, const kernels::LatentRows& rows,
                            const kernels::RmsGain& norm, const RaggedBatch& batch) {
    const TensorView compressed = rows.latent.columns(0, kLatent);
    backend.rms_norm(compressed, compressed, norm.gain, norm.eps);
    backend.rope(rows.latent.columns_as_heads(kLatent, 1, kRope), rows.angles, rows.style);
    backend.write_kv(kv, rows.latent.columns_as_heads(0, 1, kKey), {}, batch);
    backend.rope(part_of(rows.query, kNope, kRope), rows.angles, rows.style);
  }

  void attend_host(const TensorView& out, const TensorView& query, const RaggedBatch& batch) {
    const int64_t n = batch.tokens();
    HostTensor absorbed = HostTensor::make(DType::F32, {n, int64_t{heads_} * kKey});
    HostTensor mixed = HostTensor::make(DType::F32, {n, int64_t{heads_} * kLatent});
    const TensorView wide = heads_of(absorbed.view, heads_), inner = heads_of(mixed.view, heads_);
    ref().matmul_heads(part_of(wide, 0, kLatent), part_of(query, 0, kNope), host_key_);
    ref().copy(part_of(wide, kLatent, kRope), part_of(query, kNope, kRope));
    kernels::AttentionShape shape;
    shape.heads = heads_;
    shape.kv_heads = 1;
    shape.key_dim = kKey;
    shape.value_dim = kLatent;
    shape.scale = kScale;
    ref().attend(inner, wide, host_kv_, batch, shape);
    ref().matmul_heads(heads_of(out, heads_), inner, host_value_);
  }

  static constexpr float kScale = 0.05f;
  // Queries are rounded once more in the latent space, weights of the softmax and what they mix too.
  static constexpr double kLatentTolerance = 2 * kTolerance;

  int heads_ = 0, sequences_ = 0, width_ = 0;
  std::vector<kernels::Memory> memory_;
  PagedKv host_kv_, device_kv_;
  std::vector<BothWeight> weights_;
  std::vector<kernels::Weight> host_key_, host_value_, device_key_, device_value_;
};

TEST_F(LatentTest, PromptsInChunksAndSingleTokens) {
  for (const int heads : {16, 4}) {
    make(heads, 3, 400);
    const std::vector<std::vector<Range>> steps = {
        {{0, 1}, {0, 150}, {0, 70}},          // long runs of fresh prompts beside a single token
        {{1, 2}, {150, 151}, {70, 71}},       // single tokens
        {{2, 3}, {151, 280}, {71, 200}},      // the next chunks over contexts
        {{3, 4}, {280, 284}, {200, 203}},     // a few tokens each
        {{4, 300}, {284, 285}, {203, 204}}};  // single tokens behind a prompt
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_LT(run(steps[i]), kLatentTolerance) << "heads " << heads << " step " << i;
  }
}

TEST_F(LatentTest, SingleTokensOverUnevenContexts) {
  make(16, 9, 700);
  std::vector<Range> prompts, next;
  for (int s = 0; s < 9; ++s) {
    prompts.push_back({0, 1 + s * 80});
    next.push_back({1 + s * 80, 2 + s * 80});
  }
  EXPECT_LT(run(prompts), kLatentTolerance);
  EXPECT_LT(run(next), kLatentTolerance);
}

TEST_F(LatentTest, SingleTokensOfManySequences) {
  make(16, 150, 64);
  std::vector<Range> prompts, next;
  for (int s = 0; s < 150; ++s) {
    prompts.push_back({0, 1 + s % 40});
    next.push_back({1 + s % 40, 2 + s % 40});
  }
  EXPECT_LT(run(prompts, false), kLatentTolerance);
  EXPECT_LT(run(next), kLatentTolerance);
}

TEST_F(LatentTest, AsManyHeadsAsTwoBlocksTake) {
  make(128, 2, 300);
  EXPECT_LT(run({{0, 130}, {0, 5}}), kLatentTolerance);
  EXPECT_LT(run({{130, 131}, {5, 6}}), kLatentTolerance);
}

}  // namespace
}  // namespace sluice::cuda_test
