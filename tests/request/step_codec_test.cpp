#include "request/step_codec.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <random>
#include <string>

namespace sluice::request {
namespace {

class RandomStep {
 public:
  explicit RandomStep(uint64_t seed) : random_(seed) {}

  Step make() {
    Step step;
    for (int i = pick(3); i > 0; --i) step.retire.push_back(seq());
    for (int i = pick(3); i > 0; --i) step.admit.push_back(admission());
    for (int i = pick(3); i > 0; --i) step.forks.push_back({seq(), seq(), pick(9)});
    for (int i = pick(3); i > 0; --i) step.lanes.push_back({seq(), {seq(), seq()}});
    step.tables.groups = 1 + pick(3);
    for (int i = pick(4); i > 0; --i) step.moves.push_back({pick(step.tables.groups), place(), place()});
    for (int i = pick(5); i > 0; --i) {
      step.work.push_back(work());
      for (int group = 0; group < step.tables.groups; ++group) {
        std::vector<BlockId> table;
        for (int blocks = pick(6); blocks > 0; --blocks) table.push_back(BlockId{pick(100) - 1});
        step.tables.add(table);
      }
    }
    if (pick(2) == 0) step.padding = Rectangle{1 + pick(9), 1 + pick(9)};
    for (int i = pick(3); i > 0; --i) step.preempted.push_back(RequestId{random_()});
    return step;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  SeqId seq() { return SeqId{random_()}; }
  Place place() { return {static_cast<Tier>(pick(kTiers)), BlockId{pick(1000)}}; }
  std::vector<Token> tokens(int size) {
    std::vector<Token> list;
    while (static_cast<int>(list.size()) < size) list.push_back(pick(100000));
    return list;
  }
  std::vector<EmbeddingSpan> spans(int begin) {
    if (pick(2) == 0) return {};
    EmbeddingSpan span{.begin = begin, .end = begin + 1, .bidirectional = pick(2) == 0};
    span.content[31] = static_cast<uint8_t>(pick(256));
    return {span};
  }
  Work work() {
    const int begin = pick(1000), known = 1 + pick(20), drafts = pick(3);
    return {seq(),          begin,       begin + known + drafts, begin + pick(known + 1), pick(100),
            tokens(drafts), spans(begin)};
  }
  Admission admission() {
    auto request = std::make_shared<Request>();
    request->id = RequestId{random_()};
    request->client = std::string(static_cast<size_t>(pick(5)), 'c');
    request->weight = 0.5 * (1 + pick(4));
    request->priority = pick(5) - 2;
    request->prompt = tokens(1 + pick(10));
    if (request->prompt.size() > 1) request->spans = spans(0);
    if (pick(2) == 0) request->positions = {2, std::vector<int32_t>(2 * request->prompt.size(), pick(9))};
    request->cache_salt = std::string("s\0t", static_cast<size_t>(pick(4)));
    request->arrival = TimePoint(Clock::duration(pick(1000000)));
    if (pick(2) == 0) request->first_token_by = TimePoint(Clock::duration(pick(1000000)));
    if (pick(4) == 0) {
      request->task = Pooling{pick(2) == 0 ? Pooling::Of::Mean : Pooling::Of::Last, pick(2) == 0};
    } else {
      request->task = sampling();
    }
    return {seq(), request, pick(static_cast<int>(request->prompt.size()))};
  }
  SamplingParams sampling() {
    SamplingParams params;
    params.repetition_penalty = 1 + 0.1 * pick(4);
    for (int i = pick(3); i > 0; --i) params.logit_bias.push_back({pick(100), 0.5 * pick(10)});
    for (int i = pick(3); i > 0; --i) params.bad_words.push_back(tokens(1 + pick(3)));
    if (pick(3) == 0) params.allowed_tokens = tokens(1 + pick(5));
    params.stop_tokens = tokens(pick(3));
    params.ignore_eos = pick(2) == 0;
    params.max_tokens = 1 + pick(50);
    if (pick(2) == 0) params.logprobs = pick(5);
    if (pick(2) == 0) params.prompt_logprobs = pick(5);
    Sampling plain{.temperature = 0.1 * pick(20), .top_k = pick(50), .top_p = 0.9, .min_p = 0.05};
    if (pick(2) == 0) plain.seed = random_();
    const Method methods[] = {plain, BeamSearch{.width = 2, .early_stopping = EarlyStopping::Never},
                              ContrastiveSearch{.top_k = 3, .alpha = 0.5},
                              ContrastiveDecoding{.sampling = plain}};
    params.method = methods[pick(4)];
    if (params.method.index() == 0 && pick(2) == 0) params.speculate = Speculation::Suffix;
    if (params.method.index() == 0 && pick(4) == 0) {
      params.speculate = Speculation::Off;
      params.prompt_attention = true;
    }
    return params;
  }

  std::mt19937_64 random_;
};

TEST(StepCodec, ReturnsWhatItWasGiven) {
  EXPECT_TRUE(rc::check("random steps", [](uint64_t seed) {
    const Step step = RandomStep(seed).make();
    const std::vector<std::byte> bytes = serialize(step);
    const Result<Step> read = parse_step(bytes);
    if (!read) RC_FAIL(read.error().message);
    RC_ASSERT(serialize(*read) == bytes);
    RC_ASSERT(read->work == step.work);
    RC_ASSERT(read->tables == step.tables);
    RC_ASSERT(read->moves == step.moves);
    RC_ASSERT(read->padding == step.padding);
    RC_ASSERT(read->retire == step.retire);
    RC_ASSERT(read->preempted == step.preempted);
    RC_ASSERT(read->admit.size() == step.admit.size());
    for (size_t i = 0; i < step.admit.size(); ++i) {
      const Request &given = *step.admit[i].request, &got = *read->admit[i].request;
      RC_ASSERT(got.prompt == given.prompt);
      RC_ASSERT(got.spans == given.spans);
      RC_ASSERT(got.positions == given.positions);
      RC_ASSERT(got.cache_salt == given.cache_salt);
      if (given.pooling() == nullptr)
        RC_ASSERT(got.sampling().prompt_attention == given.sampling().prompt_attention);
      RC_ASSERT(got.first_token_by == given.first_token_by);
      RC_ASSERT(got.task.index() == given.task.index());
    }
  }));
}

TEST(StepCodec, RefusesBytesThatAreCutOrContinued) {
  const std::vector<std::byte> bytes = serialize(RandomStep(5).make());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(parse_step(std::span(bytes).first(size)).ok()) << size;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_step(longer).ok());
}

TEST(StepCodec, SurvivesAnyChangedByte) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<std::byte> bytes = serialize(RandomStep(seed).make());
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::vector<std::byte> changed = bytes;
        changed[i] = static_cast<std::byte>(value);
        const Result<Step> read = parse_step(changed);
        if (read.ok()) {
          EXPECT_EQ(serialize(*read), changed);
        }
      }
    }
  }
}

TEST(StepCodec, NamesWhatIsWrong) {
  const auto message = [](const Step& step) {
    const Result<Step> read = parse_step(serialize(step));
    return read ? std::string("it was taken") : read.error().message;
  };
  Step step;
  step.tables.groups = 1;
  step.work.push_back({SeqId{1}, 5, 5, 5, 0, {}, {}});
  step.tables.add({});
  EXPECT_EQ(message(step), "step: work runs positions [5, 5)");
  step.work[0].end = 6;
  EXPECT_EQ(message(step), "it was taken");
  step.work[0].drafts = {7};
  EXPECT_EQ(message(step), "step: 1 drafts in [5, 6)");
  step.work[0].drafts.clear();
  step.work[0].spans = {{.begin = 3, .end = 9, .content = {}, .bidirectional = true}};
  EXPECT_EQ(message(step), "step: work ends inside of a bidirectional span");
  step.work[0].spans.clear();
  step.moves.push_back({1, {Tier::Device, BlockId{0}}, {Tier::Host, BlockId{2}}});
  EXPECT_EQ(message(step), "step: block 0 moves to 2 in group 1 of 1");
  step.moves.clear();
  step.tables.ends[0] = 3;
  EXPECT_EQ(message(step), "step: the block tables overlap or leave blocks over");
  step.tables.ends.clear();
  EXPECT_EQ(message(step), "step: 0 block tables for 1 pieces of work in 1 groups");
}

}  // namespace
}  // namespace sluice::request
