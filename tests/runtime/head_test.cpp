// Heads for multi-token prediction and of EAGLE-3: they compute what their formula says, their guesses are right where they should be, and
// answers are the same bytes with and without them.
#include <gtest/gtest.h>

#include "head_miniature.h"
#include "rig.h"
#include "runtime/device.h"

namespace sluice::runtime::test {
namespace {

constexpr HeadNames kEveryNaming[] = {HeadNames::DeepSeek, HeadNames::MiMo, HeadNames::Qwen};

// Runs tokens from `begin` on of one sequence; the rows of all of them.
ModelRunner::Rows run_rows(ModelRunner& runner, const std::vector<Token>& tokens, int begin,
                           TensorView embedded = {}) {
  const std::vector<BlockId> blocks{BlockId{0}};
  const std::vector<std::span<const BlockId>> tables{blocks};
  Batch batch(1);
  batch.add(tokens, begin, tables);
  if (!embedded.empty()) batch.embed(0, embedded, nullptr);
  runner.forward(batch);
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  ModelRunner::Rows out;
  runner.read(rows, {.logits = true, .hidden = true}, out);
  return out;
}

Row row_of(const std::vector<float>& rows, size_t index, size_t width) {
  return {rows.begin() + static_cast<long>(index * width),
          rows.begin() + static_cast<long>((index + 1) * width)};
}

void expect_near(const Row& row, const Row& expected) {
  ASSERT_EQ(row.size(), expected.size());
  for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected[i], 2e-4) << i;
}

TEST(Head, ComputesWhatItsFormulaSays) {
  constexpr auto kDim = static_cast<size_t>(HeadMiniature::kDim),
                 kWords = static_cast<size_t>(HeadMiniature::kVocab);
  for (const HeadNames names : kEveryNaming) {
    const HeadMiniature miniature({.names = names});
    Rig rig({.model = miniature.path(), .head = true});
    const KvMemoryOptions memory{.block_size = 32, .type = DType::F32, .blocks = {1}};
    auto target = ModelRunner::make(*rig.model, memory, {}),
         head = ModelRunner::make(*rig.head->model, memory, {});
    ASSERT_TRUE(target.ok() && head.ok());
    const std::vector<Token> tokens = words(9, 4), after(tokens.begin() + 1, tokens.end());
    ModelRunner::Rows of_target = run_rows(**target, tokens, 0);
    std::vector<Row> before = miniature.hidden(tokens);
    expect_near(row_of(of_target.hidden, 8, kDim), before[8]);

    models::HeadInputs inputs(*rig.head);
    const auto view = [&](std::vector<float>& rows, int64_t count) {
      return TensorView::contiguous(rows.data(), DType::F32, {count, int64_t{kDim}});
    };
    ModelRunner::Rows made = run_rows(**head, after, 0, inputs.make(after, view(of_target.hidden, 8)));
    before.resize(8);
    std::vector<Row> expected = miniature.head_hidden(after, before);
    for (size_t i = 0; i < 8; ++i) {
      expect_near(row_of(made.hidden, i, kDim), expected[i]);
      expect_near(row_of(made.logits, i, kWords), miniature.logits(expected[i]));
    }
    // A second guess: with the head's own hidden state in the place of the target's.
    std::vector<Token> with_guess = after;
    with_guess.push_back(17);
    before.push_back(expected[7]);
    std::vector<float> last = row_of(made.hidden, 7, kDim);
    made = run_rows(**head, {17}, 8, inputs.make(std::vector<Token>{17}, view(last, 1)));
    expect_near(row_of(made.logits, 0, kWords),
                miniature.logits(miniature.head_hidden(with_guess, before)[8]));
  }
}

TEST(Eagle3Head, ComputesWhatItsFormulaSays) {
  constexpr auto kDim = static_cast<size_t>(HeadMiniature::kDim),
                 kRows = static_cast<size_t>(HeadMiniature::kDraftVocab);
  const HeadMiniature miniature({});
  Rig rig({.model = miniature.path(), .eagle = miniature.eagle_path()});
  const KvMemoryOptions memory{.block_size = 32, .type = DType::F32, .blocks = {1}};
  auto target = ModelRunner::make(*rig.model, memory, {}),
       head = ModelRunner::make(*rig.head->model, memory, {});
  ASSERT_TRUE(target.ok() && head.ok());
  EXPECT_EQ(rig.head->tokens.at(40), HeadMiniature::target_token(40));
  const std::vector<Token> tokens = words(9, 4), after(tokens.begin() + 1, tokens.end());
  (*target)->set_taps(rig.head->taps);
  run_rows(**target, tokens, 0);
  const std::vector<int32_t> rows{0, 1, 2, 3, 4, 5, 6, 7};
  ModelRunner::Rows of_target;
  (*target)->read(rows, {.tapped = true}, of_target);
  const std::vector<Row> taps = miniature.tapped(tokens);
  std::vector<Row> g;
  for (size_t i = 0; i < 8; ++i) {
    expect_near(row_of(of_target.tapped, i, 3 * kDim), taps[i]);
    g.push_back(miniature.fused(taps[i]));
  }
  models::HeadInputs inputs(*rig.head);
  const TensorView fused =
      inputs.fuse(TensorView::contiguous(of_target.tapped.data(), DType::F32, {8, int64_t{3 * kDim}}));
  run_rows(**head, after, 0, inputs.make(after, fused));
  ModelRunner::Rows made;
  (*head)->read(rows, {.logits = true, .stream = true}, made);
  std::vector<Row> expected = miniature.eagle_stream(after, g);
  for (size_t i = 0; i < 8; ++i) {
    expect_near(row_of(made.stream, i, kDim), expected[i]);
    expect_near(row_of(made.logits, i, kRows), miniature.eagle_logits(expected[i]));
  }
  // A second guess: with what left the head's layer in the place of what the target would give.
  std::vector<Token> with_guess = after;
  with_guess.push_back(17);
  g.push_back(expected[7]);
  std::vector<float> last = row_of(made.stream, 7, kDim);
  made = run_rows(**head, {17}, 8,
                  inputs.make(std::vector<Token>{17},
                              TensorView::contiguous(last.data(), DType::F32, {1, int64_t{kDim}})));
  expect_near(row_of(made.logits, 0, kRows),
              miniature.eagle_logits(miniature.eagle_stream(with_guess, g)[8]));
}

TEST(Eagle3Head, GuessesAndChangesNoByte) {
  const HeadMiniature miniature({.layers = 0, .passes_on = true});
  RigOptions options{.model = miniature.path(), .eagle = miniature.eagle_path()};
  options.speculation = {.with = Speculation::Eagle3, .control = {.most = 1, .measured = false}};
  for (const double temperature : {0.0, 1.0}) {
    Rig rig(options), plain({.model = miniature.path()});
    request::Request request = greedy_request(words(12, 3), 41);
    request.sampling().method = request::Sampling{.temperature = temperature, .top_p = 0.9, .seed = 5};
    EXPECT_EQ(rig.run(request).tokens(), plain.run(request).tokens());
    const auto& drafts = rig.engine->metrics().proposers[static_cast<size_t>(Speculation::Eagle3)];
    EXPECT_GT(drafts.accepted.value(), 4u);
  }
}

TEST(Head, SharesTheTablesThatItsFileRepeats) {
  const HeadMiniature miniature({.names = HeadNames::DeepSeek});
  Rig rig({.model = miniature.path(), .head = true});
  EXPECT_EQ(rig.head->model->weights.embedding.parts[0].data, rig.model->weights.embedding.parts[0].data);
  EXPECT_EQ(rig.head->model->weights.output.parts[0].data, rig.model->weights.output.parts[0].data);
}

TEST(Head, IsNamedWhereItIsMissing) {
  try {
    Rig rig({.head = true});
    FAIL() << "loaded";
  } catch (const std::exception& problem) {
    EXPECT_NE(std::string(problem.what()).find("expert has no head for multi-token prediction"),
              std::string::npos)
        << problem.what();
  }
}

RigOptions guessing(const HeadMiniature& miniature, int most) {
  RigOptions options{.model = miniature.path(), .head = true};
  options.speculation = {.with = Speculation::Mtp, .control = {.most = most, .measured = false}};
  return options;
}

// The next token depends on the last one alone, and the head passes that on: every guess is right, however many follow.
TEST(Head, GuessesAsManyTokensAsItIsAskedFor) {
  const HeadMiniature miniature({.layers = 0, .passes_on = true});
  for (const double temperature : {0.0, 1.0}) {
    Rig rig(guessing(miniature, 4)), plain({.model = miniature.path()});
    request::Request request = greedy_request(words(12, 3), 41);
    request.sampling().method = request::Sampling{.temperature = temperature, .top_p = 0.9, .seed = 5};
    EXPECT_EQ(rig.run(request).tokens(), plain.run(request).tokens());
    const engine::Metrics& metrics = rig.engine->metrics();
    const engine::Metrics::Proposer& drafts = metrics.proposers[static_cast<size_t>(Speculation::Mtp)];
    EXPECT_EQ(drafts.accepted.value(), drafts.drafted.value());
    EXPECT_EQ(drafts.accepted.value(), 32u);
    EXPECT_EQ(metrics.steps.value(), 9u) << "five tokens a step behind the first";
  }
}

// Guesses depend on the hidden states of whole prompts: those of chunks, of cached prefixes and behind rejected drafts.
TEST(Head, IsBatchedAndSurvivesPreemptionAndSharedPrefixes) {
  const HeadMiniature miniature({.layers = 0.15f, .passes_on = true});
  for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
    RigOptions options = guessing(miniature, 5);
    options.blocks = {40, 64, 0};
    options.scheduler.preemption = preemption;
    options.scheduler.max_step_tokens = 24;
    Rig rig(options);
    std::vector<request::Request> requests;
    std::vector<size_t> answers;
    for (uint32_t i = 0; i < 8; ++i) {
      std::vector<Token> prompt = words(20, 1);
      for (const Token token : words(6, i + 2)) prompt.push_back(token);
      requests.push_back(greedy_request(prompt, 30));
      request::SamplingParams& sampling = requests.back().sampling();
      if (i % 3 == 1) sampling.n = 2;
      if (i % 3 == 1) sampling.method = request::Sampling{.temperature = 0.9, .seed = i};
      if (i % 3 == 2) sampling.speculate = Speculation::Off;
      answers.push_back(rig.submit(requests.back()));
    }
    rig.finish();
    uint64_t accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      Rig alone({.model = miniature.path()}), alone_with_drafts(guessing(miniature, 5));
      const Answer expected = alone.run(requests[i]);
      alone_with_drafts.run(requests[i]);
      accepted += alone_with_drafts.engine->metrics().accepted_drafts.value();
      for (size_t choice = 0; choice < expected.choices.size(); ++choice)
        EXPECT_EQ(rig.answer(answers[i]).tokens(choice), expected.tokens(choice)) << i;
    }
    EXPECT_GT(accepted, 30u);
    EXPECT_GT(rig.engine->metrics().accepted_drafts.value() * 10, accepted * 8)
        << "it has seen as much as where each request runs alone";
  }
}

// Answers to requests that run together, with the head and without, where the device samples.
void expect_same_on_device(RigOptions with, uint64_t least_accepted) {
  RigOptions without = with;
  without.head = false;
  without.eagle.clear();
  without.speculation = {};
  Rig rig(with), plain(without);
  std::vector<size_t> answers, expected;
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < 6; ++i) {
      request::Request request = greedy_request(words(8 + 9 * (i % 2), i), 30 + static_cast<int>(i));
      if (i % 3 == 1) request.sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
      if (i == 5) request.sampling().speculate = Speculation::Off;
      answers.push_back(rig.submit(request));
      expected.push_back(plain.submit(request));
    }
    rig.finish();
    plain.finish();
  }
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(rig.answer(answers[i]).tokens(), plain.answer(expected[i]).tokens()) << i;
  const engine::Metrics& metrics = rig.engine->metrics();
  EXPECT_GE(metrics.accepted_drafts.value(), least_accepted) << "of " << metrics.drafted_tokens.value();
}

// Both kinds of head, of a model whose guesses are right and of one where some are wrong.
void expect_heads_guess(const RigOptions& where) {
  for (const float layers : {0.0f, 0.15f}) {
    const HeadMiniature miniature({.layers = layers, .passes_on = true});
    RigOptions mtp = where, eagle = where;
    mtp.model = eagle.model = miniature.path();
    mtp.head = true;
    mtp.speculation = {.with = Speculation::Mtp, .control = {.most = 4, .measured = false}};
    expect_same_on_device(mtp, layers == 0 ? 150 : 1);
    eagle.eagle = miniature.eagle_path();
    eagle.speculation = {.with = Speculation::Eagle3, .control = {.most = 2, .measured = false}};
    expect_same_on_device(eagle, layers == 0 ? 10 : 0);
  }
}

TEST(Head, GuessesOnADeviceThatSamples) {
  RigOptions options;
  options.ahead = true;
  options.scheduler.max_step_tokens = 24;
  expect_heads_guess(options);
}

TEST(SpeculationOnGpu, HeadsChangeNoByte) {
  const auto gpu = make_backend({.device = "cuda", .deterministic = true});
  if (!gpu) GTEST_SKIP() << "no GPU here";
  RigOptions options;
  options.on = *gpu;
  options.kv_type = DType::BF16;
  options.block_size = 16;
  expect_heads_guess(options);
}

}  // namespace
}  // namespace sluice::runtime::test
