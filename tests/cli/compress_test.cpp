// Texts made shorter by a running engine.
#include <gtest/gtest.h>

#include "cli/open_session.h"
#include "compress/engine_calls.h"
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
