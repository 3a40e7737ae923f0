// Drafts for models with layers that keep a state: answers are the same bytes with and without them, whoever guesses, however
// the work is cut, batched and preempted, and drafts are verified and accepted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

// Prompts of which two begin alike, and answers of few words, so that they repeat themselves.
std::vector<request::Request> repeating_requests() {
  std::vector<request::Request> all;
  for (uint32_t i = 0; i < 8; ++i) {
    std::vector<Token> prompt = few_words(9, 50 + i / 2);
    for (const Token token : few_words(2 + i, i)) prompt.push_back(token);
    request::Request request = greedy_request(prompt, 40);
    request::SamplingParams& sampling = request.sampling();
    sampling.allowed_tokens = {7, 20, 33, 41};
    if (i % 4 == 1) sampling.method = request::Sampling{.temperature = 0.8, .top_k = 3, .seed = i};
    if (i % 4 == 2) sampling.repetition_penalty = 1.1f;
    if (i % 4 == 3) sampling.n = 2, sampling.method = request::Sampling{.temperature = 0.5, .seed = i};
    if (i == 4) sampling.allowed_tokens = {};
    if (i == 4) sampling.constraint = request::Constraint{request::Pattern{"(ON|OFF){9,30}"}, ""};
    if (i == 5) sampling.prompt_logprobs = 1;
    all.push_back(std::move(request));
  }
  return all;
}

RigOptions drafting(const std::string& model, Speculation with) {
  RigOptions options{.model = "../../golden/data/" + model, .blocks = {400, 0, 0}};
  options.scheduler.max_context = 64;
  options.grammars = character_grammars(64);
  options.speculation = {.with = with, .control = {.most = 5, .measured = false}};
  return options;
}

struct Answers {
  std::vector<std::vector<Token>> tokens;
  uint64_t drafted = 0, accepted = 0, steps = 0;
  sched::SchedulerCounters counters;
};

Answers run_all(const RigOptions& options, bool one_by_one = false) {
  Rig rig(options);
  std::vector<size_t> indices;
  for (request::Request& request : repeating_requests()) {
    indices.push_back(rig.submit(std::move(request)));
    if (one_by_one) rig.finish();
  }
  rig.finish();
  Answers out{.counters = rig.engine->scheduler().counters()};
  for (const size_t index : indices) {
    EXPECT_FALSE(rig.answer(index).error()) << rig.answer(index).error()->message;
    for (size_t choice = 0; choice < rig.answer(index).choices.size(); ++choice)
      out.tokens.push_back(rig.answer(index).tokens(choice));
  }
  const engine::Metrics& metrics = rig.engine->metrics();
  out.drafted = metrics.drafted_tokens.value();
  out.accepted = metrics.accepted_drafts.value();
  out.steps = metrics.steps.value();
  return out;
}

class HybridDrafts : public testing::TestWithParam<const char*> {
 protected:
  // One request after the other, without drafts: what every test of a model compares with, made once.
  const Answers& alone() const {
    static std::map<std::string, Answers> made;
    const auto [at, missing] = made.try_emplace(GetParam());
    if (missing) {
      RigOptions options = drafting(GetParam(), Speculation::Off);
      options.prefix_cache = false;
      at->second = run_all(options, true);
    }
    return at->second;
  }
  // With drafts, some right and some wrong.
  void expect_same(const RigOptions& options, const Answers& expected, const std::string& what,
                   sched::SchedulerCounters* counters = nullptr) const {
    const Answers made = run_all(options);
    EXPECT_EQ(made.tokens, expected.tokens) << what;
    EXPECT_GT(made.accepted, 0u) << what;
    EXPECT_GT(made.drafted, made.accepted) << what;
    if (counters != nullptr) *counters = made.counters;
  }
};

TEST_P(HybridDrafts, OfEveryProposerChangeNoByte) {
  const Answers& expected = alone();
  for (const Speculation with :
       {Speculation::Ngram, Speculation::Suffix, Speculation::Lookahead, Speculation::Auto})
    expect_same(drafting(GetParam(), with), expected, std::string(name(with)));
  for (const int size : {1, 16}) {
    RigOptions options = drafting(GetParam(), Speculation::Suffix);
    options.block_size = size;
    expect_same(options, expected, fmt::format("blocks of {}", size));
  }
  RigOptions options = drafting(GetParam(), Speculation::Suffix);
  RigOptions off = drafting(GetParam(), Speculation::Off);
  options.ahead = off.ahead = true;
  expect_same(options, run_all(off), "where the device samples");
}

TEST_P(HybridDrafts, ChangeNoByteUnderAnyScheme) {
  const Answers& expected = alone();
  for (const char* scheme : {"static", "dynamic", "iteration"}) {
    RigOptions options = drafting(GetParam(), Speculation::Suffix);
    const Result<sched::NamedScheme> named = sched::scheme_named(scheme);
    options.scheduler.scheme = named->scheme;
    options.scheduler.scheme.max_batch_wait = Seconds(0);
    options.scheduler.layout = named->layout;
    expect_same(options, expected, scheme);
  }
  RigOptions options = drafting(GetParam(), Speculation::Suffix);
  options.scheduler.kv_policy = sched::KvPolicy::Preallocate;
  expect_same(options, expected, "all blocks at once");
  options = drafting(GetParam(), Speculation::Suffix);
  options.scheduler.max_step_tokens = 7;
  options.scheduler.max_seqs = 6;
  expect_same(options, expected, "chunks of 7");
  options = drafting(GetParam(), Speculation::Suffix);
  options.prefix_cache = false;
  expect_same(options, expected, "no prefix cache");
}

TEST_P(HybridDrafts, ArePreemptedWithoutATrace) {
  const Answers& expected = alone();
  for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
    const bool swap = preemption == sched::Preemption::Swap;
    RigOptions options = drafting(GetParam(), Speculation::Suffix);
    options.blocks = {std::string_view(GetParam()) == "mamba2" ? 24 : 44, swap ? 200 : 0, 0};
    options.scheduler.max_step_tokens = 40;
    options.scheduler.preemption = preemption;
    sched::SchedulerCounters counters;
    expect_same(options, expected, swap ? "swapped" : "computed again", &counters);
    EXPECT_GT(swap ? counters.preempted_swapped : counters.preempted_dropped, 0u);
  }
}

// Fewer drafts rather than one sequence less.
TEST_P(HybridDrafts, AreFewerWhereStateSlotsAreShort) {
  const Answers& expected = alone();
  uint64_t drafted = 0;
  for (const int slots : {34, 120}) {
    RigOptions options = drafting(GetParam(), Speculation::Suffix);
    options.state_slots = slots;
    const Answers made = run_all(options);
    EXPECT_EQ(made.tokens, expected.tokens) << slots;
    EXPECT_EQ(made.counters.preempted_dropped, 0u) << slots;
    EXPECT_GT(made.drafted, drafted) << slots;
    drafted = made.drafted;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HybridDrafts,
                         testing::Values("lfm2", "qwen3_next", "qwen3_5", "bamba", "falcon_h1", "mamba2",
                                         "nemotron_h", "granite_hybrid", "jamba", "kimi_linear",
                                         "olmo_hybrid", "zamba2"));

// A model of attention guesses for one that keeps states.
TEST(HybridDraftModel, ChangesNoByte) {
  RigOptions off = drafting("qwen3_next", Speculation::Off);
  const Answers expected = run_all(off, true);
  for (const bool swap : {false, true}) {
    RigOptions options = drafting("qwen3_next", Speculation::Draft);
    options.draft = "../../golden/data/qwen3";
    options.blocks = {swap ? 44 : 400, swap ? 200 : 0, 0};
    if (swap) options.scheduler.preemption = sched::Preemption::Swap;
    if (swap) options.scheduler.max_step_tokens = 40;
    const Answers made = run_all(options);
    EXPECT_EQ(made.tokens, expected.tokens);
    EXPECT_GT(made.drafted, 50u);
  }
}

TEST(HybridDraftModel, IsRefusedWhereItKeepsStatesItself) {
  RigOptions options = drafting("qwen3_next", Speculation::Draft);
  options.draft = options.model;
  try {
    Rig rig(options);
    FAIL() << "starts";
  } catch (const std::exception& problem) {
    EXPECT_NE(std::string(problem.what()).find("has layers that keep a state"), std::string::npos)
        << problem.what();
  }
}

}  // namespace
}  // namespace sluice::runtime::test
