// Mixtures whose experts are stored in different types, as configs have it that leave single modules out: each back-end gives
// the logits of the same weights in plain floats.
#include "tests/golden/mixed_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/device.h"
#include "runtime/scorer.h"

namespace sluice {

namespace {

constexpr StoredAs kPlain{}, kFour{.bits = 4}, kEight{.bits = 8};

StoredAs ordered(uint32_t order, int bits = 4) {
  return {.bits = bits, .order = order};
}

struct Case {
  const char* name;
  std::vector<ExpertKind> experts;
};

std::vector<Case> cases() {
  const ExpertKind four{kFour, kFour, kFour}, plain{kPlain, kPlain, kPlain};
  return {
      {"alike", {four, four, four, four}},
      {"one left as it is", {four, four, plain, four}},
      {"gate and up differ", {{kFour, kPlain, kFour}, {kPlain, kFour, kFour}, {kFour, kPlain, kEight}, four}},
      {"each another", {four, {kEight, kEight, kEight}, {kEight, kFour, kPlain}, plain}},
      {"in orders of their own",
       {{ordered(1), ordered(1), ordered(2)}, {ordered(3), ordered(3), ordered(4)}, four, plain}},
      {"gate and up in two orders",
       {{ordered(1), ordered(2), ordered(3)}, {ordered(4), kFour, kEight}, four, four}},
      {"all ordered",
       {{ordered(1), ordered(1), ordered(2)},
        {ordered(3), ordered(3), ordered(4)},
        {ordered(5), ordered(5), ordered(6)},
        {ordered(7, 8), ordered(7, 8), ordered(8, 8)}}},
  };
}

// Of `count` tokens.
std::vector<float> logits(const std::string& folder, const runtime::DeviceOptions& device, int count) {
  auto backend = runtime::make_backend(device);
  auto files = models::open_model(folder);
  if (!backend || !files) {
    ADD_FAILURE() << (backend ? files.error().message : backend.error().message);
    return {};
  }
  const auto model = models::load_model(std::move(*files), *backend);
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return {};
  }
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 11 + 5) % MixtureFolders::kVocab));
  runtime::Scorer scorer(**model, count, DType::F32);
  const auto made = scorer.append(tokens);
  if (!made) ADD_FAILURE() << made.error().message;
  return made ? *made : std::vector<float>();
}

void expect_logits_of_floats(const runtime::DeviceOptions& device, double tolerance,
                             const std::vector<int>& counts = {1, 3, 60}) {
  for (const Case& one : cases()) {
    const MixtureFolders folders(one.experts);
    for (const int count : counts) {
      SCOPED_TRACE(fmt::format("{}, {} tokens", one.name, count));
      const std::vector<float> wanted = logits(folders.plain(), {.device = "ref"}, count),
                               made = logits(folders.stored(), device, count);
      ASSERT_FALSE(wanted.empty());
      ASSERT_EQ(made.size(), wanted.size());
      double difference = 0, size = 0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        difference += std::pow(made[i] - wanted[i], 2);
        size += std::pow(wanted[i], 2);
      }
      EXPECT_LE(std::sqrt(difference / size), tolerance);
    }
  }
}

}  // namespace

TEST(MixedExperts, AgreeOnTheReference) {
  expect_logits_of_floats({.device = "ref"}, 1e-6);
}

// Activations in 8 bits may choose another expert for a token, of many for few.
TEST(MixedExperts, AgreeOnTheCpu) {
  expect_logits_of_floats({.device = "cpu", .threads = 2}, 0.1, {60});
}

TEST(MixedExperts, AgreeOnTheGpu) {
  if (!runtime::make_backend({.device = "cuda"})) GTEST_SKIP() << "no GPU here";
  for (const bool deterministic : {false, true})
    expect_logits_of_floats(
        {.device = "cuda", .activations = kernels::Activations::F32, .deterministic = deterministic}, 1e-3);
}

// So does the rounding of 16 bits.
TEST(MixedExperts, AgreeOnTheGpuInNarrowTypes) {
  if (!runtime::make_backend({.device = "cuda"})) GTEST_SKIP() << "no GPU here";
  expect_logits_of_floats({.device = "cuda", .activations = kernels::Activations::BF16}, 0.1, {60});
}

}  // namespace sluice
