// An asynchronous device gives the answers that the host alone gives, whatever runs together.
#include <gtest/gtest.h>

#include <iterator>
#include <set>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

AheadBackend& device(Rig& rig) {
  return dynamic_cast<AheadBackend&>(*rig.backend);
}

// Adds greedy requests with different prompts to a list.
struct Adder {
  std::vector<request::Request>& requests;

  request::Request& operator()(size_t prompt, int tokens) const {
    requests.push_back(greedy_request(words(prompt, static_cast<uint32_t>(requests.size() + 5)), tokens));
    return requests.back();
  }
};

// What edits of the logits say: penalties, biases, tokens that may not come.
std::vector<request::Request> edited_kinds() {
  std::vector<request::Request> requests;
  const Adder add{requests};
  const request::Sampling from_device{.temperature = 0.9, .top_k = 40, .top_p = 0.9, .seed = 21};
  add(6, 16).sampling().frequency_penalty = 1.5;
  add(9, 16).sampling().presence_penalty = -2;
  request::SamplingParams& repetition = add(30, 16).sampling();
  repetition.repetition_penalty = 1.7;
  repetition.method = from_device;
  request::SamplingParams& all = add(12, 16).sampling();
  all.repetition_penalty = 0.8;
  all.frequency_penalty = 0.4;
  all.presence_penalty = 0.3;
  all.logit_bias = {{7, 3.5}, {2, -4}, {90, 1}};
  all.bad_words = {{11}, {7}};
  all.logprobs = 5;
  all.method = from_device;
  const std::vector<Token> plain = Rig().run(greedy_request(words(7, 9), 12)).tokens();
  request::SamplingParams& least = add(7, 12).sampling();
  least.stop_tokens = {plain[0], plain[1], plain[3]};
  least.min_tokens = 6;
  request::SamplingParams& choices = add(5, 9).sampling();
  choices.n = 3;
  choices.frequency_penalty = 1;
  choices.method = request::Sampling{.temperature = 1.1, .min_p = 0.02, .seed = 5};
  return requests;
}

std::vector<request::Request> all_kinds() {
  std::vector<request::Request> requests = edited_kinds();
  const Adder add{requests};
  add(9, 20);
  add(40, 7);
  add(1, 12).sampling().method = request::Sampling{.temperature = 0.8, .top_k = 9, .top_p = 0.7, .seed = 3};
  add(17, 12).sampling().method = request::Sampling{.temperature = 1.2, .min_p = 0.1, .seed = 4};
  add(5, 9).sampling().logprobs = 4;
  request::Request& choices = add(12, 8);
  choices.sampling().n = 3;
  choices.sampling().method = request::Sampling{.temperature = 1, .seed = 11};
  // What only the host can sample.
  add(6, 10).sampling().bad_words = {{3, 4}, {9}};
  add(6, 10).sampling().method = request::Sampling{.temperature = 1, .typical_p = 0.6, .seed = 8};
  request::SamplingParams& both = add(8, 6).sampling();
  both.prompt_logprobs = 1;
  both.presence_penalty = 1.5;
  add(8, 6).sampling().prompt_logprobs = 2;
  add(7, 8).sampling().method = request::BeamSearch{.width = 3};
  add(7, 8).sampling().method = request::ContrastiveSearch{.top_k = 3};
  return requests;
}

void expect_same(const Answer& a, const Answer& b, const std::string& what) {
  ASSERT_EQ(a.choices.size(), b.choices.size()) << what;
  for (size_t c = 0; c < a.choices.size(); ++c) {
    EXPECT_EQ(a.tokens(c), b.tokens(c)) << what << ", choice " << c;
    for (size_t i = 0; i < std::min(a.choices[c].size(), b.choices[c].size()); ++i) {
      const request::Sampled &one = a.choices[c][i], &other = b.choices[c][i];
      EXPECT_NEAR(one.logprob, other.logprob, 1e-4) << what;
      ASSERT_EQ(one.top.size(), other.top.size()) << what;
      for (size_t t = 0; t < one.top.size(); ++t) EXPECT_EQ(one.top[t].token, other.top[t].token) << what;
    }
  }
  EXPECT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << what;
}

TEST(OverlappedStepRunner, AnswersAsTheHostDoes) {
  const std::vector<request::Request> requests = all_kinds();
  RigOptions options;
  options.ahead = true;
  Rig together(options);
  EXPECT_EQ(together.executor->depth(), 2);
  for (const request::Request& request : requests) together.submit(request);
  together.finish();
  for (size_t i = 0; i < requests.size(); ++i) {
    Rig alone;
    expect_same(together.answer(i), alone.run(requests[i]), "request " + std::to_string(i));
  }
}

TEST(OverlappedStepRunner, EditedLogitsStayOnTheDevice) {
  const std::vector<request::Request> requests = edited_kinds();
  RigOptions options;
  options.ahead = true;
  Rig together(options);
  for (const request::Request& request : requests) together.submit(request);
  together.finish();
  EXPECT_EQ(device(together).downloads, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    Rig alone;
    expect_same(together.answer(i), alone.run(requests[i]), "request " + std::to_string(i));
  }
}

TEST(OverlappedStepRunner, AnswersAsTheHostDoesWhenBlocksAreScarceAndPromptsAreCut) {
  const std::vector<request::Request> requests = all_kinds();
  RigOptions options;
  options.ahead = true;
  options.blocks = {24, 24, 24};
  options.scheduler.max_step_tokens = 7;
  options.scheduler.max_seqs = 6;
  for (const sched::Preemption preemption : {sched::Preemption::Recompute, sched::Preemption::Swap}) {
    options.scheduler.preemption = preemption;
    Rig together(options);
    for (const request::Request& request : requests) together.submit(request);
    together.finish();
    for (size_t i = 0; i < requests.size(); ++i) {
      Rig alone;
      expect_same(together.answer(i), alone.run(requests[i]), "request " + std::to_string(i));
    }
  }
}

TEST(OverlappedStepRunner, EndsAtAnEndTokenAlthoughTheNextStepWasSubmitted) {
  const request::Request request = greedy_request(words(9, 5), 20);
  Rig plain;
  const std::vector<Token> all = plain.run(request).tokens();
  RigOptions options;
  options.ahead = true;
  options.end_tokens = {all.at(7)};
  Rig rig(options);
  const std::vector<Token> got = rig.run(request).tokens();
  const auto end = std::find(all.begin(), all.end(), all[7]);
  EXPECT_EQ(got, std::vector<Token>(all.begin(), end + 1));
}

TEST(OverlappedStepRunner, PadsDecodeStepsToFewSizes) {
  RigOptions options;
  options.ahead = true;
  Rig rig(options);
  for (uint32_t i = 0; i < 5; ++i) rig.submit(greedy_request(words(4, i), 6));
  rig.finish();
  EXPECT_GT(device(rig).repeated_steps, 0);
  EXPECT_EQ(padded_rows(1), 1);
  EXPECT_EQ(padded_rows(3), 4);
  EXPECT_EQ(padded_rows(33), 48);
  for (int rows = 1; rows < 2000; ++rows) EXPECT_EQ(padded_rows(padded_rows(rows)), padded_rows(rows));
}

TEST(OverlappedStepRunner, WarmsUpAndThenTunesNoMore) {
  RigOptions options;
  options.ahead = true;
  options.warm_up = {.tokens = 64, .sequences = 12};
  Rig rig(options);
  EXPECT_FALSE(device(rig).tuning);
  EXPECT_EQ(device(rig).repeated_steps, 11);  // 8 rows for their speed; 1, 2, 4, 8 and 16, twice each
  const request::Request request = greedy_request(words(9, 5), 20);
  Rig plain;
  EXPECT_EQ(rig.run(request).tokens(), plain.run(request).tokens());
}

TEST(OverlappedStepRunner, FailsTheRequestWhoseLogitsAreNotFinite) {
  RigOptions options;
  options.ahead = true;
  Rig rig(options);
  rig.backend->poison = 91;
  std::vector<Token> prompt = words(6, 1);
  prompt.push_back(91);
  const size_t bad = rig.submit(greedy_request(prompt, 8));
  const size_t good = rig.submit(greedy_request(words(6, 2), 8));
  rig.finish();
  ASSERT_TRUE(rig.answer(bad).error().has_value());
  EXPECT_EQ(rig.answer(bad).ends.size(), 1u);
  EXPECT_EQ(rig.answer(good).tokens().size(), 8u);
}

// What the host samples fails after the next step was planned with its token.
TEST(OverlappedStepRunner, FailsTheRequestThatHasNoTokenLeft) {
  request::Request bad = greedy_request(words(8, 13), 8);
  bad.sampling().allowed_tokens = std::vector<Token>{5};
  bad.sampling().bad_words = {{5}};
  request::Request poisoned = greedy_request(words(8, 15), 8);
  poisoned.sampling().frequency_penalty = 1;
  poisoned.prompt[2] = 95;
  const request::Request good = greedy_request(words(8, 14), 8);
  RigOptions options;
  options.ahead = true;
  Rig rig(options);
  device(rig).poison = 95;
  const size_t a = rig.submit(bad), b = rig.submit(poisoned), c = rig.submit(good);
  rig.finish();
  EXPECT_TRUE(rig.answer(a).error());
  EXPECT_TRUE(rig.answer(b).error());
  EXPECT_EQ(rig.answer(c).tokens(), Rig().run(good).tokens());
}

TEST(OverlappedStepRunner, ADeviceThatIsGoneFailsTheEngineForGood) {
  RigOptions options;
  options.ahead = true;
  Rig rig(options);
  const size_t first = rig.submit(greedy_request(words(6, 1), 30));
  for (int i = 0; i < 3; ++i) rig.step();
  device(rig).lost = true;
  rig.finish();
  ASSERT_TRUE(rig.answer(first).error().has_value());
  EXPECT_TRUE(rig.engine->health().failed);
  EXPECT_NE(rig.engine->health().reason.find("the device has failed"), std::string::npos);
}

TEST(RoomForKv, IsWhatTheLargestStepLeaves) {
  Rig rig(RigOptions{.ahead = true});
  const KvMemoryOptions kv{.block_size = 4, .type = DType::F32, .blocks = {}};
  const Result<int64_t> room = room_for_kv(*rig.model, kv, {64, 8}, 0.5);
  ASSERT_TRUE(room.ok());
  EXPECT_GT(*room, int64_t{1} << 28);
}

// What makes a step another one for a device that records them: its tokens, its sequences, the rows that it samples from.
class RecordingBackend : public AheadBackend {
 public:
  void begin(const kernels::RaggedBatch& batch) override {
    AheadBackend::begin(batch);
    shape_[0] = batch.tokens();
    shape_[1] = batch.sequences();
  }
  void run_step(const std::function<void()>& body) override {
    shape_ = {};
    recording_ = true;
    AheadBackend::run_step(body);
    recording_ = false;
    shapes.insert(shape_);
  }
  void sample(TensorView logits, std::span<const kernels::SampleArgs> rows,
              std::span<const kernels::LogitAdjustment> edits, std::span<const uint32_t> masks) override {
    if (recording_) shape_[2] = static_cast<int64_t>(rows.size());
    AheadBackend::sample(logits, rows, edits, masks);
  }
  std::set<std::array<int64_t, 3>> shapes;

 private:
  std::array<int64_t, 3> shape_{};
  bool recording_ = false;
};

TEST(WarmUp, RecordsTheStepsThatVerifyDrafts) {
  const auto backend = std::make_shared<RecordingBackend>();
  RigOptions options;
  options.on = backend;
  options.draft = "amateur";
  options.block_size = 16;
  options.warm_up = {.tokens = 64, .sequences = 16, .rows = 16 * 7, .each = 7};
  options.speculation = {.with = Speculation::Draft, .control = {.most = 6, .measured = false}};
  Rig rig(options);
  const auto recorded = backend->shapes;
  EXPECT_LT(recorded.size(), 80u);
  for (uint32_t i = 0; i < 14; ++i) {
    request::Request request = greedy_request(words(9, i), 20 + static_cast<int>(3 * i));
    if (i % 4 == 0) request.sampling().speculate = Speculation::Off;
    rig.submit(request);
  }
  rig.finish();
  EXPECT_GT(rig.engine->metrics().drafted_tokens.value(), 100u);
  std::vector<std::array<int64_t, 3>> others;
  std::set_difference(backend->shapes.begin(), backend->shapes.end(), recorded.begin(), recorded.end(),
                      std::back_inserter(others));
  EXPECT_TRUE(others.empty()) << others.size() << ", the first of " << others[0][0] << " tokens, "
                              << others[0][1] << " sequences, " << others[0][2] << " sampled";
}

}  // namespace
}  // namespace sluice::runtime::test
