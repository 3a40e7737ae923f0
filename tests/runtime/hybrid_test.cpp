// Models with layers that keep a state, on the real executor: the same tokens however the work is cut, shared and preempted,
// and prompts that begin alike start from the state of their common beginning.
#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

// Words of a vocabulary of 64.
std::vector<Token> few_words(size_t count, uint32_t seed) {
  std::vector<Token> tokens = words(count, seed);
  for (Token& token : tokens) token = 3 + token % 60;
  return tokens;
}

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

std::vector<std::vector<Token>> answers_of(const RigOptions& options, bool one_by_one) {
  Rig rig(options);
  std::vector<size_t> indices;
  for (request::Request& request : mixed_requests()) {
    indices.push_back(rig.submit(std::move(request)));
    if (one_by_one) rig.finish();
  }
  rig.finish();
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
  RigOptions options = hybrid(GetParam(), {30, 0, 0});
  options.scheduler.max_step_tokens = 40;
  EXPECT_EQ(answers_of(options, false), expected);
  options = hybrid(GetParam(), {30, 200, 0});
  options.scheduler.preemption = sched::Preemption::Swap;
  EXPECT_EQ(answers_of(options, false), expected);
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

INSTANTIATE_TEST_SUITE_P(Models, Hybrid,
                         testing::Values("lfm2", "qwen3_next", "bamba", "falcon_h1", "mamba2", "nemotron_h"));

}  // namespace
}  // namespace sluice::runtime::test
