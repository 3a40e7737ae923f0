#include "compress/selection.h"

#include <gtest/gtest.h>

#include "compress/compressor.h"

namespace sluice::compress {
namespace {

// A token per word.
MeasuredText measured(std::string_view text, std::vector<ByteRange> marked = {}) {
  MeasuredText out{.text = text, .units = split_text(text, marked), .tokens = {}};
  out.tokens.assign(out.units.words.size(), 1);
  return out;
}

TEST(ChooseSentences, TakesTheBestThatFit) {
  const MeasuredText text = measured("one two three. Four five. Six seven eight nine. Ten.");
  const std::vector<double> scores{1, 3, 4, 2};
  EXPECT_EQ(join_kept(text, choose_sentences(text, scores, 6)), "Four five. Six seven eight nine.");
  EXPECT_EQ(join_kept(text, choose_sentences(text, scores, 5)), "Six seven eight nine. Ten.");
  EXPECT_EQ(join_kept(text, choose_sentences(text, scores, 100)), text.text);
  EXPECT_EQ(join_kept(text, choose_sentences(text, scores, 0)), "");
}

TEST(ChooseSentences, KeepsWhatIsProtectedWhateverTheBudget) {
  const std::string source =
      "the bill of 1,250 euros came.\nIt was paid by Maria in May.\nMaria said \"never again\" twice.\nAll "
      "went home.";
  const MeasuredText text = measured(source, {{source.find("went"), source.size()}});
  const std::string kept = join_kept(text, choose_sentences(text, std::vector<double>(4, 0), 0));
  EXPECT_EQ(kept, "1,250\nMaria May.\n\"never again\"\nwent home.");
  // A name that a chosen sentence holds need not be kept elsewhere.
  EXPECT_EQ(join_kept(text, choose_sentences(text, std::vector<double>{0, 0, 9, 0}, 10)),
            "1,250\nMay.\nMaria said \"never again\" twice.\nwent home.");
}

TEST(LowestSentences, AreWholeOnesUntilThereAreEnoughTokens) {
  const MeasuredText text = measured("one two three. Four five. Six 7 eight nine. Ten.");
  const std::vector<double> scores{1, 3, 2, 4};
  Kept kept(text.units.words.size(), true);
  EXPECT_EQ(join_kept(text, lowest_sentences(text, scores, kept, 0)), "");
  EXPECT_EQ(join_kept(text, lowest_sentences(text, scores, kept, 3)), "one two three.");
  // What is protected counts for nothing.
  EXPECT_EQ(join_kept(text, lowest_sentences(text, scores, kept, 6)), "one two three. Six 7 eight nine.");
  EXPECT_EQ(join_kept(text, lowest_sentences(text, scores, kept, 7)),
            "one two three. Four five. Six 7 eight nine.");
  kept[1] = false;
  EXPECT_EQ(join_kept(text, lowest_sentences(text, scores, kept, 3)), "Six 7 eight nine.");
  // Sentences that were scored together compete with each other.
  const std::vector<double> shared{1, 2, 2, 4};
  EXPECT_EQ(join_kept(text, lowest_sentences(text, shared, kept, 1)), "Four five. Six 7 eight nine.");
}

TEST(DropWords, TakesTheLeastInformationButNothingProtected) {
  const std::string source = "we saw the 3 ships of Ithaca";
  const MeasuredText text = measured(source);
  const std::vector<double> information{5, 6, 1, 0, 7, 2, 0};
  Kept kept(7, true);
  drop_words(text, information, 5, kept);
  EXPECT_EQ(join_kept(text, kept), "we saw 3 ships Ithaca");
  drop_words(text, information, 0, kept);
  EXPECT_EQ(join_kept(text, kept), "3 Ithaca");
}

TEST(JoinKept, LeavesMarkedSpansByteByByte) {
  const std::string source = "alpha beta\n  gamma\t delta  epsilon zeta";
  const ByteRange span{source.find("\n  gamma"), source.find("epsilon") + 4};
  const MeasuredText text = measured(source, {span});
  const std::string out = join_kept(text, protected_words(text));
  EXPECT_NE(out.find(source.substr(span.begin, span.size())), std::string::npos) << out;
}

TEST(PlanBudgets, SharesWhatLongTextsMayKeep) {
  using Budgets = std::vector<int>;
  const std::vector<int> sizes{10, 1000, 500};
  EXPECT_EQ(plan_budgets(sizes, {.ratio = 0.5, .min_keep = 16}), (Budgets{10, 496, 248}));
  EXPECT_EQ(plan_budgets(sizes, {.max_tokens = 160, .min_keep = 16}), (Budgets{10, 100, 50}));
  EXPECT_EQ(plan_budgets(sizes, {.max_tokens = 4, .min_keep = 64}), (Budgets{10, 64, 64}));
  EXPECT_EQ(plan_budgets(sizes, {.ratio = 1, .min_keep = 0}), (Budgets{10, 1000, 500}));
  EXPECT_EQ(plan_budgets({}, {}), Budgets{});
}

TEST(ResultCache, ForgetsTheLeastRecentlyUsed) {
  ResultCache cache(3 * 1100);
  const auto key = [](uint8_t n) { return Sha256Digest{n}; };
  std::string out;
  for (const uint8_t n : {1, 2}) cache.put(key(n), std::string(800, 'a'));
  EXPECT_TRUE(cache.find(key(1), out));
  for (const uint8_t n : {3, 4}) cache.put(key(n), std::string(800, 'b'));
  EXPECT_LE(cache.bytes(), 3300u);
  EXPECT_TRUE(cache.find(key(1), out));
  EXPECT_FALSE(cache.find(key(2), out));
  cache.put(key(9), std::string(5000, 'c'));  // over the bound alone
  EXPECT_FALSE(cache.find(key(9), out));
  EXPECT_TRUE(cache.find(key(4), out));
}

}  // namespace
}  // namespace sluice::compress
