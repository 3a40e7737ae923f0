// Which words of a text stay: sentences by their scores, then words by theirs, within a number of tokens.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compress/text_units.h"

namespace sluice::compress {

// A text, and how many tokens each of its words is.
struct MeasuredText {
  std::string_view text;
  TextUnits units;
  std::vector<int> tokens;  // [words]

  int total() const;
};

using Kept = std::vector<bool>;  // [words]
int kept_tokens(const MeasuredText& text, const Kept& kept);

// The words that are protected, and of each name the first.
Kept protected_words(const MeasuredText& text);

// Whole sentences are added to what is protected, the highest scores first, while they fit into the budget. A sentence
// that does not fit is passed over for later ones that do. Names that a chosen sentence holds are not kept elsewhere.
// REQUIRES: a score per sentence
Kept choose_sentences(const MeasuredText& text, std::span<const double> scores, int budget);

// Words of sentences that are kept whole, those with the lowest scores first, until there are so many tokens of them that are
// not protected; all of those that share the last one's score. REQUIRES: a score per sentence
Kept lowest_sentences(const MeasuredText& text, std::span<const double> scores, const Kept& kept, int tokens);

// Takes words away that are not protected, the lowest information first, until the rest fits into the budget.
// REQUIRES: a number per word
void drop_words(const MeasuredText& text, std::span<const double> information, int budget, Kept& kept);

// The kept words in their order, byte by byte. Where a line ended among dropped words, one ends in their place.
std::string join_kept(const MeasuredText& text, const Kept& kept);

// How many tokens each text may keep.
struct BudgetRule {
  double ratio = 0.5;   // of all texts together
  int max_tokens = -1;  // in its place; -1: none
  int min_keep = 64;    // texts of no more tokens are left alone, and none is made shorter than this
};
std::vector<int> plan_budgets(std::span<const int> tokens, const BudgetRule& rule);

}  // namespace sluice::compress
