// Tokens that a GPU samples against those of the host's sampler. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>

#include "kernels/cuda/cuda.h"
#include "runtime/device_logit_processor.h"
#include "runtime/overlapped_step_runner.h"

namespace sluice::runtime::test {
namespace {

// The same rows on the GPU, in bf16, and on the host.
struct Logits {
  std::vector<float> host;
  kernels::Memory device;

  template <class Sample>
  Logits(kernels::CudaBackend& gpu, int64_t rows, int64_t vocab, Sample sample)
      : host(static_cast<size_t>(rows * vocab)), device(gpu.allocate(DType::BF16, {rows, vocab})) {
    for (float& value : host) value = sample();
    kernels::Weight table;
    table.parts = {TensorView::contiguous(host.data(), DType::F32, {rows, vocab})};
    table.rows = rows;
    table.cols = vocab;
    table = gpu.prepare(table);
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    std::iota(ids.begin(), ids.end(), 0);
    gpu.embed(device.view, table, ids);
    gpu.download(TensorView::contiguous(host.data(), DType::F32, {rows, vocab}), device.view);
  }
};

constexpr int kVocab = 32003;

std::vector<request::SamplingParams> kinds() {
  std::vector<request::SamplingParams> kinds(8);
  const auto seeded = [](uint64_t seed) {
    return request::Sampling{.temperature = 0.8, .top_k = 50, .top_p = 0.95, .seed = seed};
  };
  kinds[0].frequency_penalty = 1.2;
  kinds[0].method = request::Sampling{.temperature = 0, .seed = {}};
  kinds[1].repetition_penalty = 1.4;
  kinds[1].method = seeded(1);
  kinds[2].presence_penalty = 2;
  kinds[2].logit_bias = {{17, 5}, {100, -100}, {31000, 6.5}};
  kinds[2].method = seeded(2);
  kinds[3].stop_tokens = {5, 6, 7};
  kinds[3].logit_bias = {{5, 20}, {6, 19}};
  kinds[3].min_tokens = 9;
  kinds[3].method = request::Sampling{.temperature = 0, .seed = {}};
  kinds[4].bad_words = {{17}, {18}};
  kinds[4].method = request::Sampling{.temperature = 1, .min_p = 0.05, .seed = 4};
  kinds[5].method = seeded(5);
  kinds[6].allowed_tokens = {3, 17, 400, 401, 31000, 32002};
  kinds[6].presence_penalty = 1;
  kinds[6].method = seeded(6);
  kinds[7].allowed_tokens.emplace();
  for (Token token = 1; token < kVocab; token += 3) kinds[7].allowed_tokens->push_back(token);
  kinds[7].method = request::Sampling{.temperature = 1.2, .seed = 7};
  return kinds;
}

struct Sequence {
  sampling::TokenSampler sampler;
  DeviceLogitProcessor edits;
};

std::vector<Sequence> start_sequences() {
  std::vector<Sequence> sequences;
  const std::vector<Token> prompt{3, 17, 17, 500, 31000, 9};
  for (const request::SamplingParams& kind : kinds()) {
    const sampling::SequenceStart start{.params = std::make_shared<request::SamplingParams>(kind),
                                        .vocab = kVocab,
                                        .prompt = prompt,
                                        .eos_tokens = {},
                                        .seed = sequences.size(),
                                        .choice = 0};
    sampling::TokenSampler sampler(start);
    auto edits = DeviceLogitProcessor::of(kind, start, sampler.end_tokens());
    SLUICE_CHECK(edits.has_value());
    sequences.push_back({std::move(sampler), std::move(*edits)});
  }
  return sequences;
}

// As the engine samples: the next step is asked for before the host has seen the last token.
TEST(DeviceSample, GivesTheTokensOfTheHostsSampler) {
  Result<std::unique_ptr<kernels::CudaBackend>> made = kernels::make_cuda_backend({});
  if (!made) GTEST_SKIP() << made.error().message;
  kernels::CudaBackend& gpu = **made;
  constexpr int kSteps = 24;
  std::vector<Sequence> sequences = start_sequences();
  const auto rows = static_cast<int64_t>(sequences.size());
  sampling::Workspace workspace;
  int different = 0;
  std::mt19937 engine(20261);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<Logits> logits;
  std::vector<int64_t> tickets;
  for (int step = 0; step <= kSteps; ++step) {
    if (step < kSteps) {
      logits.emplace_back(gpu, rows, kVocab, [&] { return normal(engine); });
      OverlappedStepRunner::SampleBatch to_sample;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const int ahead = step > 0 ? 1 : 0;
        auto how = sample_args(sequences[i].sampler, ahead, static_cast<int>(i) + 1);
        ASSERT_TRUE(how.has_value());
        sequences[i].edits.fill(*how, sequences[i].sampler.output().size(), ahead);
        to_sample.add(static_cast<int>(i), *how, sequences[i].edits.list());
        if (!sequences[i].sampler.has_mask()) continue;
        const auto words = static_cast<size_t>(kernels::mask_words(kVocab));
        ASSERT_TRUE(sequences[i].sampler.fill_mask(to_sample.add_mask(i, words)).ok());
      }
      gpu.sample(logits.back().device.view, to_sample.how, to_sample.edits, to_sample.masks);
      tickets.push_back(gpu.send_sampled(to_sample.how.size()));
    }
    if (step == 0) continue;
    const auto seen = static_cast<size_t>(step) - 1;
    const std::span<const kernels::SampledToken> from_device = gpu.wait_sampled(tickets[seen]);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto first = logits[seen].host.begin() + static_cast<long>(i) * kVocab;
      std::vector<float> copy(first, first + kVocab);
      const auto expected = sequences[i].sampler.sample(copy, workspace);
      ASSERT_TRUE(expected.ok());
      different += expected->token == from_device[i].token ? 0 : 1;
      sequences[i].sampler.accept(from_device[i].token);
      sequences[i].edits.accept(from_device[i].token);
    }
  }
  EXPECT_LE(different, 2);  // of 192; sums are rounded differently
}

}  // namespace
}  // namespace sluice::runtime::test
