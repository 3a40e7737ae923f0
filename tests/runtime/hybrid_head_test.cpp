// Heads for multi-token prediction of models that keep states: they compute what their formula says, and answers are the same
// bytes with and without their guesses, right ones and wrong ones.
#include <gtest/gtest.h>

#include "hybrid_head.h"
#include "rig.h"

namespace sluice::runtime::test {
namespace {

ModelRunner::Rows rows_of(ModelRunner& runner, const std::vector<Token>& tokens, TensorView embedded = {}) {
  const auto groups = kv_groups(runner.model().spec()).count();
  const std::vector<BlockId> blocks{BlockId{0}};
  const std::vector<std::span<const BlockId>> tables(groups, blocks);
  Batch batch(static_cast<int>(groups), runner.memory().state_group());
  batch.add(tokens, 0, tables);
  if (!embedded.empty()) batch.embed(0, embedded, nullptr);
  runner.forward(batch);
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  ModelRunner::Rows out;
  runner.read(rows, {.logits = true, .hidden = true}, out);
  return out;
}

class HybridHeadTest : public testing::TestWithParam<const char*> {};

void expect_formula(const HybridHeadOptions& of) {
  constexpr size_t kDim = HybridHead::kDim, kWidth = HybridHead::kVocab, kRows = 8;
  const HybridHead miniature(of);
  Rig rig({.model = miniature.path(), .head = true});
  EXPECT_FALSE(kv_groups(rig.head->model->spec()).states) << "the head's layer attends";
  auto target = ModelRunner::make(*rig.model, {.block_size = 32, .type = DType::F32, .blocks = {1, 1}}, {});
  auto head = ModelRunner::make(*rig.head->model, {.block_size = 32, .type = DType::F32, .blocks = {1}}, {});
  ASSERT_TRUE(target.ok() && head.ok());
  const std::vector<Token> tokens = few_words(kRows + 1, 4), after(tokens.begin() + 1, tokens.end());
  ModelRunner::Rows of_target = rows_of(**target, tokens);
  std::vector<HybridHead::Row> before;
  for (size_t i = 0; i < kRows; ++i) {
    const auto row = of_target.hidden.begin() + static_cast<long>(i * kDim);
    before.emplace_back(row, row + static_cast<long>(kDim));
  }
  models::HeadInputs inputs(*rig.head);
  const TensorView hidden = TensorView::contiguous(of_target.hidden.data(), DType::F32, {kRows, kDim});
  const ModelRunner::Rows made = rows_of(**head, after, inputs.make(after, hidden));
  const std::vector<HybridHead::Row> expected = miniature.head_hidden(after, before);
  for (size_t i = 0; i < kRows; ++i) {
    const HybridHead::Row logits = miniature.logits(expected[i]);
    for (size_t d = 0; d < kDim; ++d) EXPECT_NEAR(made.hidden[i * kDim + d], expected[i][d], 2e-4) << i;
    for (size_t d = 0; d < kWidth; ++d) EXPECT_NEAR(made.logits[i * kWidth + d], logits[d], 2e-4) << i;
  }
}

TEST_P(HybridHeadTest, ComputesWhatItsFormulaSays) {
  expect_formula({.model = GetParam()});
}

TEST(HybridHeadFile, IsFoundInGgufFiles) {
  expect_formula({.model = "qwen3_5", .gguf = true});
}

RigOptions guessing_of(const HybridHead& miniature, int most) {
  RigOptions options{.model = miniature.path(), .head = true};
  options.speculation = {.with = Speculation::Mtp, .control = {.most = most, .measured = false}};
  return options;
}

TEST_P(HybridHeadTest, GuessesAsManyTokensAsItIsAskedFor) {
  const HybridHead miniature({.model = GetParam(), .layers = 0, .passes_on = true});
  Rig rig(guessing_of(miniature, 4)), plain({.model = miniature.path()});
  const request::Request request = greedy_request(few_words(12, 3), 41);
  EXPECT_EQ(rig.run(request).tokens(), plain.run(request).tokens());
  const engine::Metrics& metrics = rig.engine->metrics();
  EXPECT_EQ(metrics.accepted_drafts.value(), 32u);
  EXPECT_EQ(metrics.drafted_tokens.value(), 32u);
  EXPECT_EQ(metrics.steps.value(), 9u) << "five tokens a step behind the first";
}

TEST_P(HybridHeadTest, ChangesNoByteWhereSomeGuessesAreWrong) {
  const HybridHead miniature({.model = GetParam(), .layers = 0.1f, .passes_on = true});
  for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
    for (const bool ahead : {false, true}) {
      RigOptions options = guessing_of(miniature, 5);
      options.ahead = ahead;
      options.blocks = {52, 90, 0};
      options.scheduler.preemption = preemption;
      options.scheduler.max_step_tokens = 24;
      Rig rig(options);
      std::vector<request::Request> requests;
      std::vector<size_t> answers;
      for (uint32_t i = 0; i < 8; ++i) {
        std::vector<Token> prompt = few_words(20, 1);
        for (const Token token : few_words(6, i + 2)) prompt.push_back(token);
        request::Request& request = requests.emplace_back(greedy_request(prompt, 30));
        if (i % 3 == 1) request.sampling().n = 2;
        if (i % 3 == 1) request.sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
        if (i == 5) request.sampling().speculate = Speculation::Off;
        answers.push_back(rig.submit(request));
      }
      rig.finish();
      for (size_t i = 0; i < requests.size(); ++i) {
        Rig alone({.model = miniature.path(), .ahead = ahead});
        const Answer expected = alone.run(requests[i]);
        for (size_t choice = 0; choice < expected.choices.size(); ++choice)
          EXPECT_EQ(rig.answer(answers[i]).tokens(choice), expected.tokens(choice)) << i;
      }
      const engine::Metrics& metrics = rig.engine->metrics();
      EXPECT_GT(metrics.accepted_drafts.value(), 20u);
      EXPECT_GT(metrics.drafted_tokens.value(), metrics.accepted_drafts.value());
      const sched::SchedulerCounters& counters = rig.engine->scheduler().counters();
      EXPECT_GT(counters.preempted_swapped + counters.preempted_dropped, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HybridHeadTest, testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe"));

}  // namespace
}  // namespace sluice::runtime::test
