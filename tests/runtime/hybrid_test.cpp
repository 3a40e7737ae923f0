// Models with layers that keep a state, or index keys beside their KV, on the real executor: the same tokens however the work
// is cut, shared and preempted, and prompts that begin alike start from the state of their common beginning.
#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

std::vector<request::Request> mixed_requests() {
  std::vector<request::Request> all;
  for (uint32_t i = 0; i < 8; ++i) {
    request::Request request = greedy_request(few_words(5 + 7 * (i % 4), 30 + i % 5), 12);
    if (i % 4 == 1) request.sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
    if (i % 4 == 2) request.sampling().method = request::BeamSearch{.width = 3};
    if (i % 4 == 3)
      request.sampling().n = 2, request.sampling().method = request::Sampling{.temperature = 1, .seed = i};
    all.push_back(std::move(request));
  }
  return all;
}

RigOptions hybrid(const std::string& model, std::array<int, request::kTiers> blocks) {
  RigOptions options{.model = "../../golden/data/" + model, .blocks = blocks};
  options.scheduler.max_context = 64;
  return options;
}

std::vector<std::vector<Token>> answers_of(const RigOptions& options, bool one_by_one,
                                           sched::SchedulerCounters* counters = nullptr) {
  Rig rig(options);
  std::vector<size_t> indices;
  for (request::Request& request : mixed_requests()) {
    indices.push_back(rig.submit(std::move(request)));
    if (one_by_one) rig.finish();
  }
  rig.finish();
  if (counters != nullptr) *counters = rig.engine->scheduler().counters();
  std::vector<std::vector<Token>> out;
  for (const size_t index : indices) {
    EXPECT_FALSE(rig.answer(index).error()) << rig.answer(index).error()->message;
    for (size_t choice = 0; choice < rig.answer(index).choices.size(); ++choice)
      out.push_back(rig.answer(index).tokens(choice));
  }
  return out;
}

class Hybrid : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::vector<Token>> alone() const {
    RigOptions options = hybrid(GetParam(), {400, 0, 0});
    options.prefix_cache = false;
    return answers_of(options, true);
  }
};

TEST_P(Hybrid, GivesTheSameTokensInAnyBatchAndAnyChunks) {
  const auto expected = alone();
  for (const int tokens : {3, 7, 64}) {
    RigOptions options = hybrid(GetParam(), {400, 0, 0});
    options.scheduler.max_step_tokens = tokens;
    options.scheduler.max_seqs = std::min(tokens, 6);
    EXPECT_EQ(answers_of(options, false), expected) << tokens;
  }
  for (const int size : {1, 5, 32}) {
    RigOptions options = hybrid(GetParam(), {400, 0, 0});
    options.block_size = size;
    EXPECT_EQ(answers_of(options, false), expected) << "blocks of " << size;
  }
}

TEST_P(Hybrid, GivesTheSameTokensUnderEveryScheme) {
  const auto expected = alone();
  for (const char* name : {"static", "dynamic", "iteration"}) {
    RigOptions options = hybrid(GetParam(), {400, 0, 0});
    const Result<sched::NamedScheme> scheme = sched::scheme_named(name);
    ASSERT_TRUE(scheme.ok());
    options.scheduler.scheme = scheme->scheme;
    options.scheduler.scheme.max_batch_wait = Seconds(0);
    options.scheduler.layout = scheme->layout;
    EXPECT_EQ(answers_of(options, false), expected) << name;
  }
  RigOptions options = hybrid(GetParam(), {400, 0, 0});
  options.scheduler.prefill = sched::Prefill::Separate;
  options.scheduler.kv_policy = sched::KvPolicy::Preallocate;
  EXPECT_EQ(answers_of(options, false), expected) << "in steps of their own, all blocks at once";
  options = hybrid(GetParam(), {400, 0, 0});
  options.speculation.with = Speculation::Ngram;
  EXPECT_EQ(answers_of(options, false), expected) << "with drafts";
  options = hybrid(GetParam(), {400, 0, 0});
  options.scheduler.kv_cache = options.prefix_cache = false;
  EXPECT_EQ(answers_of(options, false), expected) << "without a KV cache";
}

TEST_P(Hybrid, IsPreemptedWithoutATrace) {
  const auto expected = alone();
  sched::SchedulerCounters counters;
  const int blocks = std::string_view(GetParam()) == "mamba2" ? 14 : 30;  // which has none but states
  RigOptions options = hybrid(GetParam(), {blocks, 0, 0});
  options.scheduler.max_step_tokens = 40;
  EXPECT_EQ(answers_of(options, false, &counters), expected);
  EXPECT_GT(counters.preempted_dropped, 0u);
  options = hybrid(GetParam(), {blocks, 200, 0});
  options.scheduler.preemption = sched::Preemption::Swap;
  EXPECT_EQ(answers_of(options, false, &counters), expected);
  EXPECT_GT(counters.preempted_swapped, 0u);
}

// Each turn's prompt is the one before it, its answer and a new question.
TEST_P(Hybrid, FindsTheStateOfAConversationAgain) {
  Rig rig(hybrid(GetParam(), {400, 0, 0}));
  RigOptions fresh = hybrid(GetParam(), {400, 0, 0});
  fresh.prefix_cache = false;
  Rig plain(fresh);
  std::vector<Token> talk = few_words(8, 3);
  int repeated = 0, cached = 0;
  for (uint32_t turn = 0; turn < 5; ++turn) {
    const Answer answer = rig.run(greedy_request(talk, 5));
    EXPECT_EQ(answer.tokens(), plain.run(greedy_request(talk, 5)).tokens()) << "turn " << turn;
    if (turn > 0) cached += answer.ends.at(0).usage.cached_tokens;
    for (const Token token : answer.tokens()) talk.push_back(token);
    repeated +=
        turn < 4 ? static_cast<int>(talk.size()) - 1 : 0;  // the last answer's last token was never run
    for (const Token token : few_words(4, 40 + turn)) talk.push_back(token);
  }
  EXPECT_GE(cached + 4 * 4, repeated);  // at most a block less than what was there, each turn
}

constexpr Token kMessageEnd = 2;

// A conversation whose history does not keep answers as they were generated, as where a template leaves the reasoning out.
struct Conversation {
  uint32_t seed;
  std::vector<Token> history;  // up to the end of the last message
  int shared = 0;              // tokens that this turn's prompt has of the last one's

  void ask(uint32_t turn) {
    shared = static_cast<int>(history.size());
    for (const Token token : few_words(11 + (seed + turn) % 9, 100 * seed + turn)) history.push_back(token);
    history.push_back(kMessageEnd);
  }
  void take_answer(const std::vector<Token>& answer) {
    history.insert(history.end(), answer.begin() + 2, answer.end());
    history.push_back(kMessageEnd);
  }
};

// 20 conversations of 8 turns, turn by turn: each prompt is the history, a question and the start of an answer.
TEST(HybridChat, FindsNineTenthsOfWhatIsRepeated) {
  RigOptions options = hybrid("lfm2", {2000, 0, 0});
  options.scheduler.max_context = 512;
  options.scheduler.max_step_tokens = 64;
  options.message_ends = {kMessageEnd};
  Rig rig(options);
  options.prefix_cache = false;
  Rig plain(options);
  std::vector<Conversation> all;
  for (uint32_t i = 0; i < 20; ++i) all.push_back({.seed = i + 1, .history = few_words(24, i + 1)});
  int repeated = 0, cached = 0;
  for (uint32_t turn = 0; turn < 8; ++turn) {
    for (Conversation& talk : all) {
      talk.ask(turn);
      std::vector<Token> prompt = talk.history;
      prompt.push_back(1);  // an answer begins
      const Answer answer = rig.run(greedy_request(prompt, 6));
      if (talk.seed % 10 == 0) {
        EXPECT_EQ(answer.tokens(), plain.run(greedy_request(prompt, 6)).tokens());
      }
      // Of the last turn's tokens those up to its question were run, the answer was not kept as it was.
      if (turn > 0) {
        repeated += talk.shared - 5;
        cached += answer.ends.at(0).usage.cached_tokens;
      }
      talk.take_answer(answer.tokens());
    }
  }
  EXPECT_GE(cached, repeated * 9 / 10) << cached << " of " << repeated;
  EXPECT_GT(rig.engine->metrics().states_cached.value(), 20u) << "each conversation has one at least";
  EXPECT_GT(rig.engine->metrics().state_checkpoints.value(), 20u);
}

TEST(HybridChat, ABranchCostsAtMostAnInterval) {
  RigOptions options = hybrid("qwen3_next", {2000, 0, 0});
  options.scheduler.max_context = 512;
  options.checkpoint_interval = 32;
  Rig rig(options);
  const std::vector<Token> trunk = few_words(200, 9);
  (void)rig.run(greedy_request(trunk, 4));
  for (const size_t at : {50u, 117u, 199u}) {
    std::vector<Token> branch(trunk.begin(), trunk.begin() + static_cast<std::ptrdiff_t>(at));
    branch.push_back(trunk[at] == 5 ? 6 : 5);
    for (const Token token : few_words(20, static_cast<uint32_t>(at))) branch.push_back(token);
    const int cached = rig.run(greedy_request(branch, 4)).ends.at(0).usage.cached_tokens;
    EXPECT_GE(cached, static_cast<int>(at) - 32 - 4) << at;
    branch[at] = 7;  // parts at the same place
    EXPECT_GE(rig.run(greedy_request(branch, 4)).ends.at(0).usage.cached_tokens, static_cast<int>(at) - 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Hybrid,
                         testing::Values("lfm2", "qwen3_next", "bamba", "falcon_h1", "mamba2", "nemotron_h",
                                         "deepseek_v32", "glm_moe_dsa"));

}  // namespace
}  // namespace sluice::runtime::test
