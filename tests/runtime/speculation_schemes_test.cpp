// Answers are the same bytes with and without speculation, whoever guesses, however requests are batched; and a draft
// model's own state never shows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "head_miniature.h"
#include "rig.h"
#include "runtime/device.h"

namespace sluice::runtime::test {
namespace {

constexpr Speculation kEveryProposer[] = {Speculation::Ngram, Speculation::Suffix, Speculation::Lookahead,
                                          Speculation::Draft, Speculation::Mtp,    Speculation::Eagle3,
                                          Speculation::Auto};

std::vector<Token> twice(std::vector<Token> words) {
  const std::vector<Token> once = words;
  words.insert(words.end(), once.begin(), once.end());
  return words;
}

// Greedy and seeded, with and without a schema.
std::vector<request::Request> asked_of_all() {
  std::vector<request::Request> out;
  for (const bool schema : {false, true}) {
    for (const double temperature : {0.0, 0.8}) {
      request::Request& request = out.emplace_back(greedy_request(twice(words(10, 6)), 40));
      request.sampling().method = request::Sampling{.temperature = temperature, .seed = 11};
      if (schema)
        request.sampling().constraint = request::Constraint{
            request::JsonSchema{
                R"({"type":"object","properties":{"names":{"type":"array","maxItems":4,"items":{"enum":["left","right"]}}},"required":["names"]})"},
            ""};
    }
  }
  return out;
}

// `like`: who guesses for the model, and so which one it is.
RigOptions options_of(const std::string& scheme, Speculation with, Speculation like) {
  static const int vocab = Rig().model->spec().vocab;
  static const HeadMiniature miniature({.layers = 0.15f, .passes_on = true});
  RigOptions options;
  if (like == Speculation::Mtp || like == Speculation::Eagle3) options.model = miniature.path();
  options.head = with == Speculation::Mtp;
  if (with == Speculation::Eagle3) options.eagle = miniature.eagle_path();
  const Result<sched::NamedScheme> named = sched::scheme_named(scheme);
  options.scheduler.scheme = named->scheme;
  options.scheduler.scheme.max_batch_wait = Seconds{0};
  options.scheduler.layout = named->layout;
  options.grammars = character_grammars(vocab);
  options.speculation = {.with = with, .control = {.most = 4, .measured = false}};
  if (with == Speculation::Draft || with == Speculation::Auto) options.draft = "amateur";
  return options;
}
RigOptions options_of(const std::string& scheme, Speculation with) {
  return options_of(scheme, with, with);
}

std::vector<Answer> answers_of(Rig& rig) {
  std::vector<size_t> indices;
  for (const request::Request& request : asked_of_all()) indices.push_back(rig.submit(request));
  rig.finish();
  std::vector<Answer> out;
  for (const size_t index : indices) {
    out.push_back(rig.answer(index));
    const auto& error = out.back().error();
    EXPECT_FALSE(error) << error->message;
  }
  return out;
}

struct Expected {
  std::vector<Answer> answers;
  uint64_t steps = 0;
};

// Without speculation, of each model once: `made` has what was asked before.
const Expected& without_drafts(std::map<std::string, Expected>& made, const RigOptions& options) {
  const auto [at, missing] = made.try_emplace(options.model);
  if (missing) {
    Rig plain(options);
    at->second.answers = answers_of(plain);
    at->second.steps = plain.engine->metrics().steps.value();
  }
  return at->second;
}

TEST(SpeculationSchemes, EveryProposerChangesNoByte) {
  for (const char* scheme : {"static", "dynamic", "iteration", "continuous"}) {
    std::map<std::string, Expected> made;
    for (const Speculation with : kEveryProposer) {
      const Expected& expected = without_drafts(made, options_of(scheme, Speculation::Off, with));
      Rig rig(options_of(scheme, with));
      const std::vector<Answer> answers = answers_of(rig);
      for (size_t i = 0; i < answers.size(); ++i)
        EXPECT_EQ(answers[i].tokens(), expected.answers[i].tokens())
            << scheme << ", " << name(with) << ", request " << i;
      const engine::Metrics& metrics = rig.engine->metrics();
      EXPECT_GT(metrics.accepted_drafts.value(), 0u) << scheme << ", " << name(with);
      EXPECT_LE(metrics.steps.value(), expected.steps) << scheme << ", " << name(with);
    }
  }
}

// The same where the device samples: the draft model's tokens go from pass to pass and to the model without the host.
TEST(SpeculationSchemes, EveryProposerChangesNoByteOnADeviceThatSamples) {
  for (const char* scheme : {"static", "dynamic", "iteration", "continuous"}) {
    std::map<std::string, Expected> made;
    for (const Speculation with : kEveryProposer) {
      if (with == Speculation::Mtp || with == Speculation::Eagle3) continue;
      RigOptions off = options_of(scheme, Speculation::Off, with), on = options_of(scheme, with);
      off.ahead = on.ahead = true;
      const Expected& expected = without_drafts(made, off);
      Rig rig(on);
      const std::vector<Answer> answers = answers_of(rig);
      for (size_t i = 0; i < answers.size(); ++i)
        EXPECT_EQ(answers[i].tokens(), expected.answers[i].tokens())
            << scheme << ", " << name(with) << ", request " << i;
      EXPECT_GT(rig.engine->metrics().accepted_drafts.value(), 0u) << scheme << ", " << name(with);
    }
  }
}

// On a GPU, with results that do not depend on what runs together.
TEST(SpeculationOnGpu, ChangesNoByte) {
  const auto gpu = make_backend({.device = "cuda", .deterministic = true});
  if (!gpu) GTEST_SKIP() << "no GPU here";
  for (const Speculation with : kEveryProposer) {
    if (with == Speculation::Mtp || with == Speculation::Eagle3) continue;
    RigOptions off = options_of("continuous", Speculation::Off, with), on = options_of("continuous", with);
    for (RigOptions* options : {&off, &on}) {
      options->on = *gpu;
      options->kv_type = DType::BF16;
      options->block_size = 16;
    }
    Rig plain(off), rig(on);
    // Twice: the second time recorded steps are replayed.
    for (int round = 0; round < 2; ++round) {
      const std::vector<Answer> expected = answers_of(plain), answers = answers_of(rig);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(answers[i].tokens(), expected[i].tokens()) << name(with) << ", request " << i;
    }
    EXPECT_GT(rig.engine->metrics().accepted_drafts.value(), 0u) << name(with);
  }
}

// With itself as the draft model every guess is right, if a pass of one token gives what a row among several gives.
TEST(SpeculationOnGpu, DraftsOfTheModelItselfAreRight) {
  const auto gpu = make_backend({.device = "cuda", .deterministic = true});
  if (!gpu) GTEST_SKIP() << "no GPU here";
  RigOptions options;
  options.on = *gpu;
  options.kv_type = DType::BF16;
  options.block_size = 16;
  options.draft = options.model;
  options.speculation = {.with = Speculation::Draft, .control = {.most = 6, .measured = false}};
  Rig rig(options);
  for (uint32_t i = 0; i < 8; ++i) {
    request::Request request = greedy_request(words(12, i), 41);
    request.sampling().method = request::Sampling{.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = i};
    rig.submit(request);
  }
  rig.finish();
  const engine::Metrics& metrics = rig.engine->metrics();
  EXPECT_EQ(metrics.accepted_drafts.value(), metrics.drafted_tokens.value());
  EXPECT_LT(metrics.steps.value(), 14u);
}

TEST(DraftModel, GuessesAsADeviceSamples) {
  for (const double temperature : {0.0, 1.0}) {
    RigOptions options, off;
    options.draft = options.model;
    options.ahead = off.ahead = true;
    options.speculation = {.with = Speculation::Draft, .control = {.most = 6, .measured = false}};
    Rig rig(options), plain(off);
    std::vector<size_t> answers, expected;
    for (uint32_t i = 0; i < 3; ++i) {
      request::Request request = greedy_request(words(12, i), 41);
      request.sampling().method = request::Sampling{.temperature = temperature, .top_p = 0.9, .seed = 5};
      answers.push_back(rig.submit(request));
      expected.push_back(plain.submit(request));
    }
    rig.finish();
    plain.finish();
    for (size_t i = 0; i < answers.size(); ++i)
      EXPECT_EQ(rig.answer(answers[i]).tokens(), plain.answer(expected[i]).tokens());
    const engine::Metrics::Proposer& drafts =
        rig.engine->metrics().proposers[static_cast<size_t>(Speculation::Draft)];
    EXPECT_EQ(drafts.accepted.value(), drafts.drafted.value());
    EXPECT_GT(drafts.accepted.value(), 90u);
    EXPECT_LT(rig.engine->metrics().steps.value(), 12u);
    EXPECT_EQ(dynamic_cast<AheadBackend&>(*rig.backend).downloads, 0);
  }
}

// With itself as the draft model every guess is right, seeded ones too: they are sampled with the same random numbers.
TEST(DraftModel, GuessesAsTheModelSamples) {
  for (const double temperature : {0.0, 1.0}) {
    RigOptions options;
    options.draft = options.model;
    options.speculation = {.with = Speculation::Draft, .control = {.most = 4, .measured = false}};
    Rig rig(options), plain;
    request::Request request = greedy_request(words(12, 3), 41);
    request.sampling().method = request::Sampling{.temperature = temperature, .top_p = 0.9, .seed = 5};
    request.sampling().repetition_penalty = 1.1;
    EXPECT_EQ(rig.run(request).tokens(), plain.run(request).tokens());
    const engine::Metrics::Proposer& drafts =
        rig.engine->metrics().proposers[static_cast<size_t>(Speculation::Draft)];
    EXPECT_EQ(drafts.accepted.value(), drafts.drafted.value());
    EXPECT_EQ(drafts.accepted.value(), 32u);
    EXPECT_EQ(drafts.works.value(), 8u);
    EXPECT_EQ(rig.engine->metrics().steps.value(), 9u) << "five tokens a step behind the first";
  }
}

void expect_survives_preemption(sched::Preemption preemption, bool ahead) {
  RigOptions options;
  options.model = "windowed";
  options.draft = "windowed";
  options.blocks = {40, 64, 0};
  options.scheduler.preemption = preemption;
  options.scheduler.max_step_tokens = 32;
  options.speculation = {.with = Speculation::Draft, .control = {.most = 5, .measured = false}};
  options.ahead = ahead;
  Rig rig(options);
  std::vector<request::Request> requests;
  std::vector<size_t> answers;
  for (uint32_t i = 0; i < 8; ++i) {
    std::vector<Token> prompt = words(20, 1);
    for (const Token token : words(6, i + 2)) prompt.push_back(token);
    requests.push_back(greedy_request(prompt, 30));
    if (i % 3 == 1) requests.back().sampling().n = 2;
    if (i % 3 == 1) requests.back().sampling().method = request::Sampling{.temperature = 0.9, .seed = i};
    if (i % 3 == 2) requests.back().sampling().speculate = Speculation::Off;
    answers.push_back(rig.submit(requests.back()));
  }
  rig.finish();
  for (size_t i = 0; i < requests.size(); ++i) {
    RigOptions plain;
    plain.model = options.model;
    plain.ahead = ahead;
    Rig alone(plain);
    const Answer expected = alone.run(requests[i]);
    for (size_t choice = 0; choice < expected.choices.size(); ++choice)
      EXPECT_EQ(rig.answer(answers[i]).tokens(choice), expected.tokens(choice)) << i;
  }
  const engine::Metrics& metrics = rig.engine->metrics();
  EXPECT_GT(metrics.accepted_drafts.value() * 2, metrics.drafted_tokens.value())
      << "its KV is lost no more often than the target's";
}

TEST(DraftModel, IsBatchedAndSurvivesPreemptionAndSharedPrefixes) {
  for (const bool ahead : {false, true}) {
    expect_survives_preemption(sched::Preemption::Recompute, ahead);
    expect_survives_preemption(sched::Preemption::Swap, ahead);
  }
}

TEST(Speculation, IsChosenByTheRequest) {
  RigOptions options;
  options.speculation.control = {.most = 4, .measured = false};
  Rig rig(options);
  request::Request request = greedy_request(twice(words(10, 6)), 30);
  const auto drafted = [&] { return rig.engine->metrics().drafted_tokens.value(); };
  const Answer off = rig.run(request);
  EXPECT_EQ(drafted(), 0u);
  request.sampling().speculate = Speculation::Suffix;
  engine::Trace::Cursor watching;
  rig.engine->trace(watching);
  const Answer on = rig.run(request);
  uint64_t traced = 0;
  for (const auto& step : rig.engine->trace(watching).steps)
    for (const engine::TracedWork& work : step->work) traced += static_cast<uint64_t>(work.accepted);
  EXPECT_EQ(traced, rig.engine->metrics().accepted_drafts.value());
  EXPECT_EQ(on.tokens(), off.tokens());
  EXPECT_GT(drafted(), 0u);
  EXPECT_EQ(static_cast<uint64_t>(on.ends.at(0).usage.drafted_tokens), drafted());
  request.sampling().speculate = Speculation::Draft;
  EXPECT_EQ(rig.run(request).error()->message,
            "speculate is draft; there is no draft model, which --speculate draft:MODEL names");
  request.sampling().method = request::BeamSearch{};
  EXPECT_THROW(rig.run(request), std::runtime_error);
}

// Two samples of the third token, with drafts and without, from other seeds: one distribution.
TEST(Speculation, LeavesTheDistributionAsItIs) {
  const char* wanted = std::getenv("SLUICE_CHI_SQUARE_SAMPLES");
  const int rounds = std::max(1, (wanted == nullptr ? 3200 : std::atoi(wanted)) / 128);
  for (const Speculation with : {Speculation::Draft, Speculation::Mtp, Speculation::Lookahead}) {
    std::map<Token, std::array<double, 2>> counts;
    for (const size_t on : {0u, 1u}) {
      Rig rig(options_of("continuous", on == 1 ? with : Speculation::Off, with));
      for (int round = 0; round < rounds; ++round) {
        request::Request request = greedy_request(words(4, 8), 3);
        request.sampling().n = 16;
        for (int part = 0; part < 8; ++part) {
          const auto seed = static_cast<uint64_t>(1 + part + 8 * (round + rounds * static_cast<int>(on)));
          request.sampling().method = request::Sampling{.temperature = 1, .top_k = 12, .seed = seed};
          const Answer answer = rig.run(request);
          for (size_t choice = 0; choice < 16; ++choice) ++counts[answer.tokens(choice).at(2)][on];
        }
      }
      if (on == 0) continue;
      EXPECT_GT(rig.engine->metrics().accepted_drafts.value(), static_cast<uint64_t>(rounds));
    }
    double chi_square = 0, cells = -1;
    for (const auto& [token, seen] : counts) {
      const double expected = (seen[0] + seen[1]) / 2;
      if (expected < 8) continue;
      chi_square += (std::pow(seen[0] - expected, 2) + std::pow(seen[1] - expected, 2)) / expected;
      ++cells;
    }
    EXPECT_GT(cells, 8);
    EXPECT_LT(chi_square, cells + 4 * std::sqrt(2 * cells)) << name(with);
  }
}

}  // namespace
}  // namespace sluice::runtime::test
