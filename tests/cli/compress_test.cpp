// Texts made shorter by a running engine.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/open_session.h"
#include "compress/engine_calls.h"
#include "compress/prefill.h"
#include "engine/engine.h"
#include "llm/engine_flags.h"
#include "tests/llm/tiny_model.h"

namespace sluice::cli {
namespace {

class CompressSession : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<llm::Session>> opened =
        llm::Session::open(model_.path(), {"device=ref", "kv-tokens=4096", "ctx-size=2048"});
    ASSERT_TRUE(opened) << opened.error().message;
    session_ = std::move(*opened);
    compressor_.emplace(compress_model(*session_), compress_model(*session_));
  }

  llm::TinyModel model_;
  std::unique_ptr<llm::Session> session_;
  std::optional<compress::ModelCompressor> compressor_;
};

const std::string kText =
    "the ships came in late. They had been out for 17 days. Nobody in the harbour of Kos knew why. The "
    "captain said little about it. A storm took the mast and the sail. We paid 240 coins for the wood. Then "
    "all of us went home to sleep. What was paid for the wood";

TEST_F(CompressSession, ScoresOfAnEndAreThoseOfTheWhole) {
  const compress::Model model = compress_model(*session_);
  std::vector<Token> tokens;
  for (int i = 0; i < 90; ++i) tokens.push_back(4 + i * 7 % 50);
  const auto scored = compress::score(model, {{tokens, 1}, {tokens, 70}, {tokens, 89}}, {});
  ASSERT_TRUE(scored) << scored.error().message;
  ASSERT_EQ((*scored)[0].size(), 89u);
  EXPECT_EQ((*scored)[1], std::vector<float>((*scored)[0].begin() + 69, (*scored)[0].end()));
  EXPECT_EQ((*scored)[2], std::vector<float>((*scored)[0].end() - 1, (*scored)[0].end()));
}

TEST_F(CompressSession, KeepsWhatIsProtectedWithinTheBudgetAndRemembersIt) {
  compress::Task task{.options = {.ratio = 0.5, .min_keep = 16}, .texts = {{.text = kText}}, .caller = {}};
  const std::string mark = "A storm took the mast";
  task.texts[0].marked.push_back({kText.find(mark), kText.find(mark) + mark.size()});
  task.texts[0].question = compress::question_of(kText);
  task.options.question = kText.substr(task.texts[0].question.begin);
  const auto made = compressor_->compress(task);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_FALSE(made->cached);
  EXPECT_EQ(made->original_tokens, static_cast<int>(kText.size()));
  EXPECT_LE(made->kept_tokens, static_cast<int>(kText.size() + 1) / 2);
  EXPECT_GT(made->kept_tokens, static_cast<int>(kText.size()) / 4);
  const std::string& text = made->texts.front();
  for (const char* kept : {"A storm took the mast", "17", "240", "Kos", "What was paid for the wood"})
    EXPECT_NE(text.find(kept), std::string::npos) << kept << " in " << text;
  const auto again = compressor_->compress(task);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->cached);
  EXPECT_EQ(again->texts, made->texts);
  task.caller.cache_salt = "another client";
  EXPECT_FALSE(compressor_->compress(task)->cached);
  task.options.min_keep = 10000;
  EXPECT_EQ(compressor_->compress(task)->texts.front(), kText);
}

TEST_F(CompressSession, ShortPromptsAreNotFoundUnderTheLongOnes) {
  compress::Task task{.options = {.ratio = 0.4, .min_keep = 16}, .texts = {{.text = kText}}, .caller = {}};
  const auto made = compressor_->compress(task);
  ASSERT_TRUE(made) << made.error().message;
  const llm::Settings settings{"raw=on", "temperature=0", "max-tokens=8", "ignore_eos=on"};
  const auto fresh = session_->generate(kText, settings);  // nothing of it was computed before
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->cached_tokens, 0);
  const auto brief = session_->generate(made->texts.front(), settings);
  ASSERT_TRUE(brief);
  size_t common = 0;
  while (common < made->texts.front().size() && made->texts.front()[common] == kText[common]) ++common;
  EXPECT_LE(brief->cached_tokens, static_cast<int>(common) + 1);
  const auto repeated = session_->generate(kText, settings);
  ASSERT_TRUE(repeated);
  EXPECT_EQ(repeated->text, fresh->text);
  EXPECT_GT(session_->generate(made->texts.front(), settings)->cached_tokens, 0);
}

TEST_F(CompressSession, SummariesHoldMarkedSpansAndTheQuestion) {
  compress::Task task{.options = {.mode = compress::Mode::Summary, .ratio = 0.4, .min_keep = 16},
                      .texts = {{.text = kText}},
                      .caller = {}};
  task.texts[0].marked.push_back({4, 14});
  task.texts[0].question = compress::question_of(kText);
  const auto made = compressor_->compress(task);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_NE(made->texts.front().find("ships came"), std::string::npos);
  EXPECT_TRUE(made->texts.front().ends_with("What was paid for the wood"));
}

// How likely the tokens of a sequence are, under a salt of its own.
std::vector<float> likelihood(llm::Session& session, compress::ScoredSequence sequence, std::string salt) {
  const auto scored =
      compress::score(compress_model(session), {std::move(sequence)}, {.cache_salt = std::move(salt)});
  EXPECT_TRUE(scored);
  return scored ? scored->front() : std::vector<float>();
}

TEST_F(CompressSession, TokensAtPositionsWithGapsAreOtherTokens) {
  std::vector<Token> tokens;
  for (int i = 0; i < 96; ++i) tokens.push_back(4 + i * 7 % 50);
  std::vector<int32_t> positions(tokens.size()), apart;
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions[i] = static_cast<int32_t>(i);
    apart.push_back(static_cast<int32_t>(i < 40 ? i : i + 300));
  }
  const std::vector<float> plain = likelihood(*session_, {tokens, 90}, "a");
  EXPECT_EQ(likelihood(*session_, {tokens, 90, positions}, "b"), plain);
  // Both under one salt, in either order: neither finds what the other left in the prefix cache.
  const std::vector<float> gaps = likelihood(*session_, {tokens, 90, apart}, "a");
  EXPECT_NE(gaps, plain);
  EXPECT_EQ(likelihood(*session_, {tokens, 90, apart}, "c"), gaps);
  EXPECT_EQ(likelihood(*session_, {tokens, 90}, "c"), plain);
}

TEST_F(CompressSession, AttentionToAPromptIsAWeightPerToken) {
  const compress::Model model = compress_model(*session_);
  std::vector<Token> tokens;
  for (int i = 0; i < 75; ++i) tokens.push_back(4 + i * 7 % 50);
  const auto weights = compress::attend(model, tokens, 4, {});
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->size(), tokens.size());
  double sum = 0;
  for (const float weight : *weights) {
    EXPECT_GT(weight, 0);
    EXPECT_LE(weight, 1);
    sum += weight;
  }
  EXPECT_GE(sum, 0.999);  // each head's weights add up to 1, and the largest of them count
  // The prompt is in the prefix cache now.
  EXPECT_EQ(*compress::attend(model, tokens, 4, {}), *weights);
}

TEST_F(CompressSession, PrefillKeepsTokensAtTheirPositions) {
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += "the ships came in late and nobody in the harbour knew why it was so. ";
  text += "What was paid for the wood";
  const std::string mark = "harbour knew";
  compress::Task task{.options = {.mode = compress::Mode::Prefill, .ratio = 0.4, .min_keep = 16},
                      .texts = {{.text = text}},
                      .caller = {}};
  const size_t at = text.find(mark, 400);
  task.texts[0].marked.push_back({at, at + mark.size()});
  task.texts[0].question = compress::question_of(text);
  const auto prompt = session_->tokenizer().encode(text, {.add_special = true});
  ASSERT_TRUE(prompt);
  const auto made = compressor_->keep_tokens(task, *prompt);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_FALSE(made->cached);
  EXPECT_LE(made->kept_tokens, static_cast<int>(0.4 * made->original_tokens) + 1);
  EXPECT_GT(made->kept_tokens, static_cast<int>(0.2 * made->original_tokens));
  EXPECT_TRUE(std::is_sorted(made->kept.begin(), made->kept.end()));
  EXPECT_EQ(made->kept.back() + 1, static_cast<int>(prompt->size()));
  EXPECT_NE(made->text.find(mark), std::string::npos) << made->text;
  EXPECT_NE(made->text.find(" … "), std::string::npos) << made->text;
  EXPECT_TRUE(made->text.ends_with("What was paid for the wood")) << made->text;
  const auto again = compressor_->keep_tokens(task, *prompt);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->cached);
  EXPECT_EQ(again->kept, made->kept);
}

TEST_F(CompressSession, WhatSurroundsTextsStays) {
  const std::string text = "  we saw 3 ships and they saw us\n";
  const auto prompt =
      session_->tokenizer().encode("<user>we saw 3 ships and they saw us</user> we", {.add_special = false});
  ASSERT_TRUE(prompt);
  const size_t marked = text.find("they");
  const compress::Text texts[] = {{.text = "not there"}, {.text = text, .marked = {{marked, marked + 4}}}};
  const compress::TextTokens parts = compress::find_texts(session_->tokenizer(), *prompt, texts);
  std::string in_text, fixed;
  for (size_t i = 0; i < prompt->size(); ++i) {
    const std::string_view piece = session_->tokenizer().piece_bytes((*prompt)[i]);
    if (parts.in_text[i]) in_text += piece;
    if (parts.in_text[i] && parts.fixed[i]) fixed += piece;
    if (!parts.in_text[i]) EXPECT_TRUE(parts.fixed[i]) << i;
  }
  EXPECT_EQ(in_text, "we saw 3 ships and they saw us");
  EXPECT_EQ(fixed, "3they");
}

TEST_F(CompressSession, PrefillNamesWhatItCannotDo) {
  compress::Model model = compress_model(*session_);
  const compress::Task task{
      .options = {.mode = compress::Mode::Prefill, .min_keep = 16}, .texts = {{.text = kText}}, .caller = {}};
  const auto prompt = session_->tokenizer().encode(kText, {.add_special = true});
  ASSERT_TRUE(prompt);
  compress::Model brief = model;
  brief.context = 100;
  const auto too_long = compress::ModelCompressor(model, brief).keep_tokens(task, *prompt);
  EXPECT_NE(too_long.error().message.find("compressor's context of 100"), std::string::npos);
  model.takes_positions = false;
  EXPECT_EQ(compress::ModelCompressor(model, model).keep_tokens(task, *prompt).error().code,
            ErrorCode::Unsupported);
}

class GivesUp : public Interrupt {
 public:
  Status check() override { return Error{ErrorCode::Unavailable, "given up"}; }
};

TEST_F(CompressSession, EndsWithItsCallerAndTakesNoMoreThanItsLimits) {
  GivesUp interrupt;
  compress::Task task{.options = {.min_keep = 16}, .texts = {{.text = kText}}, .caller = {}};
  compress::ModelCompressor small(compress_model(*session_), compress_model(*session_), {.text_tokens = 100});
  EXPECT_EQ(small.compress(task).error().code, ErrorCode::LimitExceeded);
  compress::ModelCompressor none(compress_model(*session_), compress_model(*session_), {.at_once = 0});
  EXPECT_EQ(none.compress(task).error().code, ErrorCode::Unavailable);
  task.caller.interrupt = &interrupt;
  const std::string long_text(30000, 'a');
  task.texts[0].text = long_text;
  EXPECT_EQ(compressor_->compress(task).error().message, "given up");
}

}  // namespace
}  // namespace sluice::cli
