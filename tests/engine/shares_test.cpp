// How clients share an engine, on a device whose steps take 10 ms and 1 ms for each token.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/answer.h"

namespace sluice::sim {
namespace {

// Counts tokens by client, and lets time pass.
class PacedExecutor : public FakeExecutor {
 public:
  PacedExecutor(const kv::KvManagerOptions& options, TimePoint& now) : FakeExecutor(options), now_(now) {
    check_kv = false;
  }
  void submit(const Step& step) override {
    for (const request::Admission& admission : step.admit) owners_[admission.seq] = admission.request->client;
    for (const request::Fork& fork : step.forks) owners_[fork.child] = owners_.at(fork.parent);
    for (const request::Lanes& lanes : step.lanes)
      for (const SeqId seq : lanes.lanes) owners_[seq] = owners_.at(lanes.group);
    std::map<std::string, int64_t> in_step;
    for (const request::Work& work : step.work) in_step[owners_.at(work.seq)] += work.end - work.begin;
    for (const auto& [client, count] : in_step) tokens[client] += count;
    const double seconds = 0.01 + 0.001 * static_cast<double>(step.tokens());
    if (in_step.size() > 1) longest_shared = std::max(longest_shared, seconds);
    now_ += std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
    FakeExecutor::submit(step);
  }
  std::map<std::string, int64_t> tokens;
  double longest_shared = 0;  // step in which more than one client had work

 private:
  TimePoint& now_;
  std::map<SeqId, std::string> owners_;
};

struct Shape {
  int prompt = 16, answer = 16, n = 1;
};

// What became of a request.
struct Fate {
  bool done = false;
  double first_token = -1;  // seconds after it was sent
  std::optional<Error> error;
  std::optional<int> retry_after_s;
};

class SharesTest : public ::testing::Test {
 protected:
  void build(int blocks = 4096, int max_seqs = 32) {
    engine_.reset();
    engine::EngineOptions options;
    options.scheduler.max_seqs = max_seqs;
    options.scheduler.max_step_tokens = 512;
    options.kv_manager = {.block_size = 16, .groups = {{.window = 0, .blocks = {blocks}}}};
    options.queue.requests = 1024;
    options.vocab = kVocab;
    now_ = TimePoint{};
    executor_ = std::make_unique<PacedExecutor>(options.kv_manager, now_);
    engine_ = std::make_unique<Engine>(options, *executor_, [this] { return now_; });
  }
  void SetUp() override { build(); }

  Submission submission(const std::string& client, const Shape& shape) {
    Submission submission;
    submission.request.client = client;
    for (int i = 0; i < shape.prompt; ++i)
      submission.request.prompt.push_back(1 + static_cast<Token>(random_() % (kVocab - 1)));
    submission.request.sampling().max_tokens = shape.answer;
    submission.request.sampling().ignore_eos = true;
    submission.request.sampling().n = shape.n;
    return submission;
  }
  Fate& send(Submission submission) {
    Fate& fate = *fates_.emplace_back(std::make_unique<Fate>());
    submission.deliver = [this, &fate, sent = now_](const Event& event) {
      if (std::holds_alternative<Delta>(event) && fate.first_token < 0)
        fate.first_token = seconds_between(sent, now_);
      if (const auto* last = std::get_if<Finished>(&event))
        fate.done = true, fate.error = last->error, fate.retry_after_s = last->retry_after_s;
    };
    const Result<request::RequestId> id = engine_->submit(std::move(submission));
    if (!id) fate.done = true, fate.error = id.error();
    return fate;
  }
  Fate& send(const std::string& client, const Shape& shape) { return send(submission(client, shape)); }

  double seconds() const { return seconds_between(TimePoint{}, now_); }

  // Each client always has `pending` requests of its shape under way.
  struct Loop {
    std::string client;
    Shape shape;
    double weight = 1;
    int pending = 8;
    std::vector<const Fate*> sent;
  };
  void run(std::vector<Loop>& loops, double until) {
    while (seconds() < until) {
      for (Loop& loop : loops) {
        std::erase_if(loop.sent, [](const Fate* fate) { return fate->done; });
        while (static_cast<int>(loop.sent.size()) < loop.pending) {
          Submission one = submission(loop.client, loop.shape);
          one.request.weight = loop.weight;
          loop.sent.push_back(&send(std::move(one)));
        }
      }
      ASSERT_TRUE(engine_->step());
    }
  }
  // Tokens of each client per weight, in order, beside their mean.
  std::vector<double> shares(const std::vector<Loop>& loops, const std::map<std::string, int64_t>& before) {
    std::vector<double> all;
    for (const Loop& loop : loops) {
      const auto found = before.find(loop.client);
      const int64_t earlier = found == before.end() ? 0 : found->second;
      all.push_back(static_cast<double>(executor_->tokens[loop.client] - earlier) / loop.weight);
    }
    double sum = 0;
    for (const double share : all) sum += share;
    for (double& share : all) share /= sum / static_cast<double>(all.size());
    std::sort(all.begin(), all.end());
    return all;
  }
  void expect_fair(std::vector<Loop> loops, double until) {
    run(loops, 10);
    executor_->longest_shared = 0;
    const std::map<std::string, int64_t> before = executor_->tokens;
    run(loops, until);
    const std::vector<double> all = shares(loops, before);
    EXPECT_GE(all.front(), 0.9);
    EXPECT_LE(all.back(), 1.1);
    EXPECT_LE(executor_->longest_shared, 0.501);
    EXPECT_EQ(executor_->complaint(), "");
  }

  std::mt19937 random_{5};
  TimePoint now_{};
  std::vector<std::unique_ptr<Fate>> fates_;
  std::unique_ptr<PacedExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

constexpr Shape kShapes[] = {{16, 100, 1}, {300, 20, 1}, {60, 60, 4}, {100, 10, 1}, {8, 40, 16}};

TEST_F(SharesTest, TwoClientsOfDifferentShapes) {
  expect_fair({{.client = "talks", .shape = {16, 120, 1}, .pending = 40},
               {.client = "reads", .shape = {300, 20, 1}, .pending = 40}},
              60);
}

TEST_F(SharesTest, TenClientsOfDifferentShapes) {
  std::vector<Loop> loops;
  for (int i = 0; i < 10; ++i)
    loops.push_back({.client = "c" + std::to_string(i), .shape = kShapes[i % 5], .pending = 12});
  expect_fair(loops, 120);
}

TEST_F(SharesTest, AHundredClientsOfDifferentShapes) {
  std::vector<Loop> loops;
  for (int i = 0; i < 100; ++i)
    loops.push_back({.client = "c" + std::to_string(i), .shape = kShapes[i % 5], .pending = 3});
  expect_fair(loops, 600);
}

TEST_F(SharesTest, WeightsCount) {
  std::vector<Loop> loops;
  for (int i = 0; i < 6; ++i)
    loops.push_back(
        {.client = "c" + std::to_string(i), .shape = kShapes[i % 5], .weight = 1.0 + i % 3, .pending = 24});
  expect_fair(loops, 180);
}

TEST_F(SharesTest, ALoneClientHasTheWholeStep) {
  send("a", {.prompt = 512, .answer = 1});
  engine_->step();
  EXPECT_EQ(executor_->tokens["a"], 512);
}

TEST_F(SharesTest, ThroughputIsThatOfFirstCome) {
  struct Arrival {
    double at;
    int client;
    Shape shape;
  };
  std::mt19937 random(3);
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 800; ++i) {
    const int client = static_cast<int>(random() % 10);
    arrivals.push_back({0.05 * i * static_cast<double>(random() % 3), client, kShapes[client % 5]});
  }
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  const auto time_of = [&](bool shared, int blocks) {
    build(blocks);
    random_.seed(5);
    size_t next = 0;
    while (true) {
      for (; next < arrivals.size() && arrivals[next].at <= seconds(); ++next)
        send(shared ? std::to_string(arrivals[next].client) : "", arrivals[next].shape);
      if (engine_->step()) continue;
      if (next == arrivals.size()) break;
      now_ = TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(arrivals[next].at));
    }
    for (const std::unique_ptr<Fate>& fate : fates_) EXPECT_TRUE(fate->done && !fate->error);
    fates_.clear();
    return seconds();
  };
  for (const int blocks : {4096, 600}) {
    const double first_come = time_of(false, blocks), shared = time_of(true, blocks);
    EXPECT_LE(shared, first_come / 0.97) << blocks << " blocks";
  }
}

// While one client attacks, another one's one-token requests are answered soon.
TEST_F(SharesTest, NobodyIsStopped) {
  const std::map<std::string, std::vector<Shape>> attacks = {
      {"n 32", {{16, 500, 32}}},
      {"wide behind a stream", {{16, 2000, 1}, {16, 500, 32}, {16, 500, 32}}},
      {"long prompts", {{4000, 50, 1}, {4000, 50, 1}, {4000, 50, 1}}},
      {"1024 prompts", std::vector<Shape>(1024, Shape{200, 200, 1})},
  };
  for (const auto& [name, shapes] : attacks) {
    build();
    for (const Shape& shape : shapes) send("attacker", shape);
    while (seconds() < 3) ASSERT_TRUE(engine_->step());
    for (int i = 0; i < 10; ++i) {
      const Fate& fate = send("quiet", {.prompt = 20, .answer = 1});
      while (!fate.done) ASSERT_TRUE(engine_->step());
      EXPECT_LE(fate.first_token, 1.0) << name;
      EXPECT_FALSE(fate.error) << name << ": " << fate.error->message;
      for (int steps = 0; steps < 5; ++steps) engine_->step();
    }
  }
}

// The attacker's choices that paused go on, and its preempted requests end.
TEST_F(SharesTest, WhatWasGivenBackGoesOn) {
  const Fate& wide = send("a", {16, 200, 32});
  for (int i = 0; i < 10; ++i) engine_->step();
  std::vector<Loop> loops{{.client = "b", .shape = {16, 50, 1}, .pending = 32}};
  run(loops, 5);
  EXPECT_GT(engine_->metrics().shares_given_back.value(), 0u);
  const double mine = static_cast<double>(executor_->tokens["a"]),
               theirs = static_cast<double>(executor_->tokens["b"]);
  EXPECT_GT(mine, 0.4 * theirs);
  EXPECT_GT(theirs, 0.4 * mine);
  while (!wide.done && seconds() < 120) run(loops, seconds() + 1);
  EXPECT_TRUE(wide.done && !wide.error);
}

// A beam search as wide as all that may run, among clients that never pause.
TEST_F(SharesTest, AWideSearchIsNotPassedForEver) {
  std::vector<Loop> loops;
  for (int i = 0; i < 5; ++i)
    loops.push_back({.client = std::to_string(i), .shape = {16, 50, 1}, .pending = 10});
  run(loops, 5);
  Submission search = submission("searches", {16, 20, 1});
  search.request.sampling().method = request::BeamSearch{.width = 32};
  const Fate& fate = send(std::move(search));
  const double sent = seconds();
  while (!fate.done && seconds() < sent + 60) run(loops, seconds() + 0.5);
  EXPECT_TRUE(fate.done && !fate.error);
  EXPECT_EQ(executor_->complaint(), "");
}

TEST_F(SharesTest, PlacesInTheQueueAreGivenBack) {
  for (int i = 0; i < 1100; ++i) send("a", {16, 100, 1});
  const auto refused = [&] {
    return std::count_if(fates_.begin(), fates_.end(),
                         [](const auto& fate) { return fate->error.has_value(); });
  };
  EXPECT_EQ(refused(), 1100 - 1024) << "alone, a client has all places";
  EXPECT_FALSE(engine_->has_place("a", 1));
  EXPECT_TRUE(engine_->has_place("b", 1));
  const Fate& quiet = send("b", {16, 1, 1});
  engine_->step();
  for (int i = 0; i < 3; ++i) engine_->step();
  EXPECT_TRUE(quiet.done && !quiet.error);
  EXPECT_EQ(engine_->metrics().places_given_back.value(), 1u);
  const auto youngest = std::find_if(fates_.rbegin() + 1, fates_.rend(), [](const auto& fate) {
    return fate->error && fate->error->message.find("given back") != std::string::npos;
  });
  ASSERT_NE(youngest, fates_.rend());
  EXPECT_EQ(std::distance(fates_.begin(), youngest.base()) - 1, 1023) << "the last that was let in";
}

TEST_F(SharesTest, DeadlinesThatCannotBeMetAreRefusedAtOnce) {
  std::vector<Loop> loops{{.client = "a", .shape = {300, 20, 1}, .pending = 60}};
  run(loops, 10);
  const auto ask = [&](const std::string& client, double within) -> const Fate& {
    Submission one = submission(client, {300, 1, 1});
    one.first_token_within = Seconds(within);
    const Fate& fate = send(std::move(one));
    engine_->step();
    return fate;
  };
  const Fate& hopeless = ask("b", 0.2);
  ASSERT_TRUE(hopeless.error) << "300 tokens take 0.31 s";
  EXPECT_GE(hopeless.retry_after_s.value_or(0), 1);
  const Fate& fine = ask("b", 2);
  EXPECT_FALSE(fine.error);
  while (!fine.done) run(loops, seconds() + 0.1);
  EXPECT_LE(fine.first_token, 2);
  EXPECT_FALSE(fine.error);
}

TEST_F(SharesTest, AsManyDeadlinesAreTakenAsCanBeMet) {
  send("a", {300, 1, 1});  // tells the pace
  while (engine_->step()) continue;
  std::vector<const Fate*> asked;
  for (int i = 0; i < 40; ++i) {
    Submission one = submission("a", {300, 5, 1});
    one.first_token_within = Seconds(3);
    asked.push_back(&send(std::move(one)));
  }
  while (engine_->step()) continue;
  const auto refused =
      std::count_if(asked.begin(), asked.end(), [](const Fate* fate) { return bool(fate->error); });
  EXPECT_GE(refused, 28) << "3 s are less than 10 prompts of 0.3 s";
  EXPECT_LE(refused, 34);
  for (const Fate* fate : asked) EXPECT_LE(fate->first_token, 3.3);
}

}  // namespace
}  // namespace sluice::sim
