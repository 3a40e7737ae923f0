// Beam search against transformers and against all sequences of a tiny model, and its ways to stop by hand.
#include "sampling/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "sampling/token_sampler.h"
#include "tests/sampling/cases.h"

namespace sluice::sampling {
namespace {

using request::EarlyStopping;
using Table = std::vector<std::vector<float>>;

// Logits that depend on the last token and, where there are steps, on the position.
struct Model {
  Table table;  // [token, vocab]
  Table steps;  // [position, vocab]

  std::vector<float> row(size_t position, Token last) const {
    std::vector<float> logits = table[last];
    for (size_t i = 0; !steps.empty() && i < logits.size(); ++i) logits[i] += steps[position][i];
    return logits;
  }
};

std::vector<Token> ids(const request::Hypothesis& hypothesis) {
  std::vector<Token> list;
  for (const request::Sampled& token : hypothesis.tokens) list.push_back(token.token);
  return list;
}

// Runs the search; forks samplers as an engine forks sequences.
std::vector<request::Hypothesis> search(const Model& model, const SequenceStart& start, size_t n) {
  std::vector<TokenSampler> beams = {TokenSampler(start)};
  const auto& method = std::get<request::BeamSearch>(start.params->method);
  const std::span<const Token> ends = beams[0].end_tokens();
  BeamState state(
      {.beam = method, .max_tokens = start.params->max_tokens, .end_tokens = {ends.begin(), ends.end()}});
  Workspace workspace;
  while (!state.done()) {
    std::vector<std::vector<ScoredToken>> candidates;
    for (const TokenSampler& beam : beams) {
      const size_t position = beam.output().size();
      std::vector<float> row =
          model.row(position, position == 0 ? start.prompt.back() : beam.output().back());
      candidates.push_back(*beam.beam_candidates(row, state.candidates_per_beam(), workspace));
    }
    std::vector<TokenSampler> next;
    for (const request::LaneMove& move : state.advance(candidates)) {
      next.push_back(beams[static_cast<size_t>(move.parent)]);
      next.back().accept(move.token);
    }
    EXPECT_EQ(next.size(), state.done() ? 0 : state.running());
    beams = std::move(next);
  }
  return state.best(n);
}

EarlyStopping early_stopping_of(const json::value& value) {
  if (value.is_string()) return EarlyStopping::Never;
  return value.as_bool() ? EarlyStopping::AtWidth : EarlyStopping::Heuristic;
}

TEST(BeamSearch, EqualsTransformersOnATableModel) {
  size_t number = 0;
  for (const json::value& entry : load_cases("beams.json")) {
    const json::object& test = entry.as_object();
    Model model;
    for (const json::value& row : test.at("table").as_array()) model.table.push_back(floats(row));
    for (const json::value& row : test.at("steps").as_array()) model.steps.push_back(floats(row));
    const int vocab = static_cast<int>(model.table.size());
    auto params = std::make_shared<request::SamplingParams>();
    params->max_tokens = test.at("max_tokens").to_number<int>();
    params->min_tokens = test.at("min_tokens").to_number<int>();
    params->repetition_penalty = test.at("repetition_penalty").to_number<double>();
    params->n = test.at("n").to_number<int>();
    params->method = request::BeamSearch{.width = test.at("width").to_number<int>(),
                                         .length_penalty = test.at("length_penalty").to_number<double>(),
                                         .early_stopping = early_stopping_of(test.at("early_stopping"))};
    ASSERT_TRUE(request::validate(*params, vocab).ok());
    const std::vector<Token> prompt = tokens(test.at("prompt")), ends = tokens(test.at("end_tokens"));
    const std::vector<request::Hypothesis> found =
        search(model, {.params = params, .vocab = vocab, .prompt = prompt, .eos_tokens = ends},
               static_cast<size_t>(params->n));
    const json::array& results = test.at("results").as_array();
    ASSERT_EQ(found.size(), results.size()) << "case " << number;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(ids(found[i]), tokens(results[i].at("tokens"))) << "case " << number << " result " << i;
      EXPECT_NEAR(found[i].score, results[i].at("score").to_number<double>(), 1e-4) << "case " << number;
    }
    ++number;
  }
  EXPECT_GE(number, 60U);
}

// A Markov model of four tokens, of which the last ends a sequence.
constexpr Token kEnd = 3;
constexpr int kVocab = 4;
constexpr int kMaxTokens = 5;

Table markov_model(uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1.5F);
  Table table(kVocab, std::vector<float>(kVocab));
  for (std::vector<float>& row : table) {
    for (float& logit : row) logit = normal(generator);
  }
  return table;
}

double logprob(const Table& table, Token last, Token token) {
  double total = 0;
  for (float logit : table[last]) total += std::exp(double{logit});
  return table[last][token] - std::log(total);
}

double score_of(const Table& table, const std::vector<Token>& sequence, double length_penalty) {
  double sum = 0;
  Token last = 0;
  for (Token token : sequence) {
    sum += logprob(table, last, token);
    last = token;
  }
  return sum / std::pow(sequence.size(), length_penalty);
}

void all_sequences(std::vector<Token>& prefix, std::vector<std::vector<Token>>& into) {
  if (!prefix.empty() && (prefix.back() == kEnd || prefix.size() == kMaxTokens)) {
    into.push_back(prefix);
    return;
  }
  for (Token token = 0; token < kVocab; ++token) {
    prefix.push_back(token);
    all_sequences(prefix, into);
    prefix.pop_back();
  }
}

std::vector<request::Hypothesis> search_markov(const Table& table, const request::BeamSearch& beam,
                                               size_t n) {
  auto params = std::make_shared<request::SamplingParams>();
  params->max_tokens = kMaxTokens;
  params->stop_tokens = {kEnd};
  params->method = beam;
  const std::vector<Token> prompt = {0};
  return search({.table = table}, {.params = params, .vocab = kVocab, .prompt = prompt}, n);
}

TEST(BeamSearch, WideEnoughItFindsTheBestOfAllSequences) {
  std::vector<std::vector<Token>> sequences;
  std::vector<Token> prefix;
  all_sequences(prefix, sequences);
  const size_t count = sequences.size();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Table table = markov_model(seed);
    for (double length_penalty : {-0.5, 0.0, 1.0, 2.0}) {
      std::vector<double> scores;
      for (const auto& sequence : sequences) scores.push_back(score_of(table, sequence, length_penalty));
      std::sort(scores.begin(), scores.end(), std::greater<>());
      for (EarlyStopping mode : {EarlyStopping::AtWidth, EarlyStopping::Heuristic, EarlyStopping::Never}) {
        const auto found = search_markov(
            table,
            {.width = static_cast<int>(count), .length_penalty = length_penalty, .early_stopping = mode},
            count);
        ASSERT_EQ(found.size(), count);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(found[i].score, scores[i], 1e-5) << "rank " << i << " seed " << seed;
          ASSERT_NEAR(score_of(table, ids(found[i]), length_penalty), scores[i], 1e-5);
        }
      }
    }
  }
}

TEST(BeamSearch, NarrowItReturnsDistinctSequencesWithTheirTrueScores) {
  std::vector<std::vector<Token>> sequences;
  std::vector<Token> prefix;
  all_sequences(prefix, sequences);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Table table = markov_model(seed);
    double best = -1e9;
    for (const auto& sequence : sequences) best = std::max(best, score_of(table, sequence, 1));
    const auto found = search_markov(table, {.width = 3, .early_stopping = EarlyStopping::Never}, 3);
    ASSERT_EQ(found.size(), 3U);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].score, score_of(table, ids(found[i]), 1), 1e-5);
      double sum = 0;
      for (const request::Sampled& token : found[i].tokens) sum += token.logprob;
      EXPECT_NEAR(sum, score_of(table, ids(found[i]), 0), 1e-5);
      const bool ended = found[i].tokens.back().token == kEnd;
      EXPECT_EQ(found[i].reason, ended ? request::FinishReason::Stop : request::FinishReason::Length);
      EXPECT_LE(found[i].score, best + 1e-6);
      for (size_t j = 0; j < i; ++j) {
        EXPECT_NE(ids(found[i]), ids(found[j]));
        EXPECT_GE(found[j].score, found[i].score);
      }
    }
  }
}

// Two hypotheses end at the first step, yet the running beam is better than both of them.
TEST(BeamSearch, EarlyStoppingDecidesWhetherRunningBeamsGoOn) {
  const std::vector<std::vector<ScoredToken>> first = {{{9, -1.0F}, {8, -1.1F}, {1, -0.5F - 1}, {2, -5}}};
  const auto state_of = [&](EarlyStopping mode, double length_penalty) {
    return BeamState({.beam = {.width = 2, .length_penalty = length_penalty, .early_stopping = mode},
                      .max_tokens = 4,
                      .end_tokens = {8, 9}});
  };
  BeamState at_width = state_of(EarlyStopping::AtWidth, 1);
  EXPECT_TRUE(at_width.advance(first).empty());
  EXPECT_TRUE(at_width.done());
  BeamState heuristic = state_of(EarlyStopping::Heuristic, 1);
  heuristic.advance(first);
  EXPECT_TRUE(heuristic.done()) << "-1.5 at length 1 is worse than -1.1";
  BeamState never = state_of(EarlyStopping::Never, 1);
  const std::vector<request::LaneMove> moves = never.advance(first);
  ASSERT_EQ(moves.size(), 2U);
  EXPECT_EQ(moves[0].token, 1);
  EXPECT_EQ(moves[1].token, 2);
  EXPECT_FALSE(never.done()) << "-1.5 at length 4 would be better than -1.1";
  BeamState short_is_best = state_of(EarlyStopping::Never, 0);
  short_is_best.advance(first);
  EXPECT_TRUE(short_is_best.done());
  EXPECT_EQ(never.best(5).size(), 2U);
  EXPECT_EQ(ids(never.best(1)[0]), (std::vector<Token>{9}));
}

TEST(BeamSearch, ReportsTheLikeliestTokensOfEachRow) {
  BeamState state({.beam = {.width = 1}, .max_tokens = 2, .end_tokens = {5}, .logprobs = 3});
  EXPECT_EQ(state.candidates_per_beam(), 3);
  state.advance(std::vector<std::vector<ScoredToken>>{{{1, -0.1F}, {2, -2}, {3, -3}}});
  state.advance(std::vector<std::vector<ScoredToken>>{{{4, -0.2F}, {5, -4}}});
  const std::vector<request::Hypothesis> best = state.best(1);
  ASSERT_EQ(ids(best[0]), (std::vector<Token>{1, 4}));
  EXPECT_EQ(best[0].tokens[1].logprob, -0.2F);
  ASSERT_EQ(best[0].tokens[0].top.size(), 3U);
  EXPECT_EQ(best[0].tokens[0].top[2].token, 3);
  ASSERT_EQ(best[0].tokens[1].top.size(), 2U);
  EXPECT_EQ(best[0].tokens[1].top[1].logprob, -4);
}

// What completes a constraint needs no end token, and what breaks it leaves its place to the next.
TEST(BeamSearch, EndsWhatIsCompleteAndPassesOverWhatIsBroken) {
  using Fit = BeamState::Fit;
  BeamState state({.beam = {.width = 2}, .max_tokens = 9, .end_tokens = {}});
  const auto judge = [](size_t, Token token) {
    return token == 1 ? Fit::Broken : token == 2 ? Fit::Complete : Fit::Open;
  };
  const auto moves =
      state.advance(std::vector<std::vector<ScoredToken>>{{{1, -0.1F}, {3, -1}, {2, -2}, {4, -3}}}, judge);
  ASSERT_EQ(moves.size(), 2U);
  EXPECT_EQ(moves[0].token, 3);
  EXPECT_EQ(moves[1].token, 4);
  EXPECT_TRUE(state.advance(std::vector<std::vector<ScoredToken>>{{{2, -1}}, {{1, -1}}}, judge).empty());
  ASSERT_EQ(state.best(3).size(), 2U);
  EXPECT_EQ(ids(state.best(3)[0]), (std::vector<Token>{3, 2}));
  EXPECT_EQ(ids(state.best(3)[1]), (std::vector<Token>{2}));
  EXPECT_EQ(state.best(3)[0].reason, request::FinishReason::Stop);
  BeamState hopeless({.beam = {.width = 2}, .max_tokens = 9, .end_tokens = {}});
  EXPECT_TRUE(hopeless.advance(std::vector<std::vector<ScoredToken>>{{{1, -0.1F}}}, judge).empty());
  EXPECT_TRUE(hopeless.done());
  EXPECT_TRUE(hopeless.best(1).empty());
}

TEST(BeamSearch, EndsWhereEverythingEnds) {
  BeamState state({.beam = {.width = 2}, .max_tokens = 9, .end_tokens = {5}});
  EXPECT_EQ(state.candidates_per_beam(), 4);
  EXPECT_TRUE(state.advance(std::vector<std::vector<ScoredToken>>{{{5, -0.1F}}}).empty());
  EXPECT_TRUE(state.done());
  EXPECT_EQ(state.best(2).size(), 1U);
}

}  // namespace
}  // namespace sluice::sampling
