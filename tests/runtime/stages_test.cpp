// A model whose layers are cut into two stages, the second a thread of this process: several steps are in flight, and the
// answers are those of one rank.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "dist/local_group.h"
#include "rig.h"
#include "runtime/parallel/worker.h"

namespace sluice::runtime::test {
namespace {

// Lets nothing through while it is closed.
class Gate {
 public:
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

class GatedRank : public dist::Communicator {
 public:
  GatedRank(std::unique_ptr<dist::Communicator> inner, Gate& gate) : inner_(std::move(inner)), gate_(gate) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    gate_.pass();
    inner_->exchange(out, in);
  }
  void post(int to, std::span<const std::byte> bytes) override {
    gate_.pass();
    inner_->post(to, bytes);
  }
  void abandon() override { inner_->abandon(); }

 private:
  std::unique_ptr<dist::Communicator> inner_;
  Gate& gate_;
};

// The second stage of a model; the first one's group is for a Rig.
class LaterStage {
 public:
  explicit LaterStage(int micro_batches = 2) {
    auto ranks = dist::make_local_group(2);
    const models::Cuts cuts{.stages = 2, .micro_batches = micro_batches};
    first = std::make_shared<models::ModelGroup>(std::move(ranks[0]), cuts);
    auto group =
        std::make_shared<models::ModelGroup>(std::make_unique<GatedRank>(std::move(ranks[1]), gate), cuts);
    thread_ = std::thread([this, group = std::move(group)]() mutable {
      Result<std::unique_ptr<models::Model>> part = models::load_model(
          std::move(*models::open_model(kData + "/expert")), std::make_shared<kernels::RefBackend>(),
          [](float) {}, std::move(group));
      ended = part ? run_worker(**part) : Status(part.error());
    });
  }
  ~LaterStage() { join(); }
  // REQUIRES: the first stage's rig is gone.
  void join() {
    first.reset();
    if (thread_.joinable()) thread_.join();
  }

  Gate gate;
  std::shared_ptr<models::ModelGroup> first;
  Status ended;

 private:
  std::thread thread_;
};

std::vector<request::Request> every_kind() {
  std::vector<request::Request> all;
  for (uint32_t i = 0; i < 14; ++i) {
    request::Request request = greedy_request(words(6 + 5 * (i % 4), 30 + i % 7), 20);
    request.sampling().logprobs = 2;
    if (i % 7 == 1) request.sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
    if (i % 7 == 2) request.sampling().method = request::BeamSearch{.width = 3};
    if (i % 7 == 3)
      request.sampling().n = 3, request.sampling().method = request::Sampling{.temperature = 1, .seed = i};
    if (i % 7 == 4) request.sampling().method = request::ContrastiveSearch{.top_k = 3, .alpha = 0.5};
    if (i % 7 == 5) request.sampling().prompt_logprobs = 1;
    if (i % 7 == 6) request.task = request::Pooling{.of = request::Pooling::Of::Mean};
    all.push_back(std::move(request));
  }
  return all;
}

// Tokens, log-probabilities and vectors, all of their bits.
std::vector<double> numbers_of(Rig& rig) {
  std::vector<size_t> indices;
  for (request::Request& request : every_kind()) indices.push_back(rig.submit(std::move(request)));
  rig.finish();
  std::vector<double> out;
  const auto add = [&](const std::vector<request::Sampled>& tokens) {
    for (const request::Sampled& sampled : tokens) {
      out.push_back(sampled.token);
      out.push_back(sampled.logprob);
    }
  };
  for (const size_t index : indices) {
    const Answer& answer = rig.answer(index);
    EXPECT_FALSE(answer.error()) << answer.error()->message;
    for (const auto& choice : answer.choices) add(choice);
    add(answer.prompt_logprobs);
    for (const auto& vector : answer.vectors) out.insert(out.end(), vector.begin(), vector.end());
  }
  return out;
}

RigOptions plenty() {
  RigOptions options{.blocks = {2000, 0, 0}};
  options.scheduler.max_seqs = 24;
  options.scheduler.max_step_tokens = 48;
  return options;
}

TEST(Stages, EveryKindOfRequestHasTheBitsOfOneRank) {
  Rig whole(plenty());
  const std::vector<double> expected = numbers_of(whole);
  LaterStage later;
  {
    RigOptions options = plenty();
    options.group = std::move(later.first);
    Rig rig(options);
    ASSERT_EQ(rig.executor->depth(), 2);
    EXPECT_EQ(numbers_of(rig), expected);
  }
  later.join();
  EXPECT_TRUE(later.ended.ok());
}

TEST(Stages, StepsRunAloneWhereOneMicroBatchIsAskedFor) {
  Rig whole(plenty());
  const std::vector<double> expected = numbers_of(whole);
  LaterStage later(1);
  RigOptions options = plenty();
  options.group = std::move(later.first);
  Rig rig(options);
  EXPECT_EQ(rig.executor->depth(), 1);
  EXPECT_EQ(numbers_of(rig), expected);
  const Status refused = models::Cuts{.stages = 2, .micro_batches = 3}.check();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--pp-micro-batches is 3 and --pp is 2"), std::string::npos);
}

TEST(Stages, PreemptedAndSwappedSequencesHaveTheBitsOfOneRank) {
  Rig whole(plenty());
  const std::vector<double> expected = numbers_of(whole);
  for (const sched::Preemption preemption : {sched::Preemption::Swap, sched::Preemption::Recompute}) {
    LaterStage later;
    RigOptions options{.blocks = {60, 80, 0}};
    options.scheduler.preemption = preemption;
    options.scheduler.max_step_tokens = 40;
    options.group = std::move(later.first);
    Rig rig(options);
    EXPECT_EQ(numbers_of(rig), expected);
    const sched::SchedulerCounters& counters = rig.engine->scheduler().counters();
    EXPECT_GT(counters.preempted_swapped + counters.preempted_dropped, 0u);
  }
}

TEST(Stages, DraftsAreVerifiedInStepsThatOverlap) {
  const auto echo = [](uint32_t i) {  // prompts whose n-grams come back
    std::vector<Token> prompt = words(6, i), again = prompt;
    for (int times = 0; times < 3; ++times) prompt.insert(prompt.end(), again.begin(), again.end());
    return greedy_request(std::move(prompt), 24);
  };
  const auto tokens_of = [&](Rig& rig) {
    for (uint32_t i = 0; i < 6; ++i) rig.submit(echo(i));
    rig.finish();
    std::vector<std::vector<Token>> out;
    for (size_t i = 0; i < 6; ++i) out.push_back(rig.answer(i).tokens());
    return out;
  };
  Rig whole(plenty());
  LaterStage later;
  RigOptions options = plenty();
  options.speculation.with = Speculation::Ngram;
  options.group = std::move(later.first);
  Rig rig(options);
  EXPECT_EQ(tokens_of(rig), tokens_of(whole));
  EXPECT_GT(rig.engine->metrics().drafted_tokens.value(), 0u);
}

// The second stage is held: the first one runs two steps of different sequences meanwhile.
TEST(Stages, TheFirstStageDoesNotWaitForTheSecond) {
  LaterStage later;
  RigOptions options = plenty();
  options.group = std::move(later.first);
  Rig rig(options);
  ASSERT_EQ(rig.executor->depth(), 2);
  kv::KvManager blocks({.block_size = 4, .groups = {{.blocks = {2000, 0, 0}}}, .model = "expert"});
  options.scheduler.stages = 2;
  sched::Scheduler scheduler(options.scheduler, blocks);
  for (uint32_t i = 0; i < 4; ++i) {
    request::Request request = greedy_request(words(6, i), 8);
    request.id = request::RequestId{i + 1};
    scheduler.add(std::move(request));
  }
  const auto plan = [&] { return scheduler.plan(TimePoint{}); };
  const auto collect = [&](const request::Step& step) {
    return scheduler.commit(step, rig.executor->collect().value()).size();
  };
  const request::Step prompts = plan();
  rig.executor->submit(prompts);
  EXPECT_EQ(collect(prompts), 4u);
  const int64_t before = rig.backend->embedded;
  later.gate.set_open(false);
  const request::Step first = plan();
  rig.executor->submit(first);
  const request::Step second = plan();
  rig.executor->submit(second);
  EXPECT_EQ(first.work.size(), 2u);
  EXPECT_EQ(second.work.size(), 2u);
  EXPECT_EQ(rig.backend->embedded - before, 4);
  later.gate.set_open(true);
  EXPECT_EQ(collect(first), 2u);
  EXPECT_EQ(collect(second), 2u);
}

// Six requests, of which steps are in flight.
void begin_six(Rig& rig) {
  for (uint32_t i = 0; i < 6; ++i) rig.submit(greedy_request(words(6, i), 8));
  for (int i = 0; i < 4; ++i) rig.step();
}

TEST(Stages, AGroupEndsWithStepsInFlight) {
  LaterStage later;
  {
    RigOptions options = plenty();
    options.group = std::move(later.first);
    Rig rig(options);
    begin_six(rig);
  }
  later.join();
  EXPECT_TRUE(later.ended.ok()) << later.ended.error().message;
}

TEST(Stages, AStepThatFailsBehindOthersEndsTheGroup) {
  LaterStage later;
  {
    RigOptions options = plenty();
    options.group = std::move(later.first);
    Rig rig(options);
    begin_six(rig);
    rig.backend->fail_next = true;
    rig.finish();
    for (size_t i = 0; i < 6; ++i) {
      ASSERT_TRUE(rig.answer(i).error());
      EXPECT_NE(rig.answer(i).error()->message.find("fell off the bus"), std::string::npos);
    }
    EXPECT_TRUE(rig.engine->health().failed);
  }
  later.join();
  EXPECT_FALSE(later.ended.ok());
}

}  // namespace
}  // namespace sluice::runtime::test
