#include "compress/selection.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <unordered_set>

#include "base/check.h"

namespace sluice::compress {

namespace {

std::string_view name_at(const MeasuredText& text, size_t word) {
  const ByteRange range = text.units.words[word].text();
  return bare(text.text.substr(range.begin, range.size()));
}

int sentence_tokens(const MeasuredText& text, const Sentence& sentence, const Kept& kept) {
  int sum = 0;
  for (size_t i = sentence.first; i < sentence.end; ++i) sum += kept[i] ? 0 : text.tokens[i];
  return sum;
}

// Places of names that are kept though their sentence is not, where the name occurs in one that is.
void release_names(const MeasuredText& text, const std::vector<bool>& whole, Kept& kept) {
  std::unordered_set<std::string_view> seen;
  const auto is_name = [&](size_t i) { return text.units.words[i].protection == Protection::Entity; };
  for (size_t s = 0; s < whole.size(); ++s) {
    for (size_t i = text.units.sentences[s].first; whole[s] && i < text.units.sentences[s].end; ++i)
      if (is_name(i)) seen.insert(name_at(text, i));
  }
  for (size_t s = 0; s < whole.size(); ++s) {
    for (size_t i = text.units.sentences[s].first; !whole[s] && i < text.units.sentences[s].end; ++i)
      if (is_name(i) && seen.contains(name_at(text, i))) kept[i] = false;
  }
}

}  // namespace

int MeasuredText::total() const {
  return std::accumulate(tokens.begin(), tokens.end(), 0);
}

int kept_tokens(const MeasuredText& text, const Kept& kept) {
  int sum = 0;
  for (size_t i = 0; i < kept.size(); ++i) sum += kept[i] ? text.tokens[i] : 0;
  return sum;
}

Kept protected_words(const MeasuredText& text) {
  Kept kept(text.units.words.size());
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Protection why = text.units.words[i].protection;
    kept[i] = why > Protection::Entity || (why == Protection::Entity && seen.insert(name_at(text, i)).second);
  }
  return kept;
}

Kept choose_sentences(const MeasuredText& text, std::span<const double> scores, int budget) {
  const std::vector<Sentence>& sentences = text.units.sentences;
  SLUICE_CHECK_EQ(scores.size(), sentences.size());
  Kept kept = protected_words(text);
  std::vector<size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<bool> whole(sentences.size());
  int used = kept_tokens(text, kept);
  for (const size_t s : order) {
    const int more = sentence_tokens(text, sentences[s], kept);
    if (used + more > budget) continue;
    used += more;
    whole[s] = true;
    for (size_t i = sentences[s].first; i < sentences[s].end; ++i) kept[i] = true;
  }
  release_names(text, whole, kept);
  return kept;
}

Kept lowest_sentences(const MeasuredText& text, std::span<const double> scores, const Kept& kept,
                      int tokens) {
  const std::vector<Sentence>& sentences = text.units.sentences;
  SLUICE_CHECK_EQ(scores.size(), sentences.size());
  std::vector<size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  Kept out(kept.size());
  int found = 0;
  double last = 0;
  for (const size_t s : order) {
    if (found >= tokens && (found == 0 || scores[s] != last)) break;
    const auto begin = static_cast<std::ptrdiff_t>(sentences[s].first);
    const auto end = static_cast<std::ptrdiff_t>(sentences[s].end);
    if (std::find(kept.begin() + begin, kept.begin() + end, false) != kept.begin() + end) continue;
    for (size_t i = sentences[s].first; i < sentences[s].end; ++i) {
      out[i] = true;
      found += text.units.words[i].protection == Protection::None ? text.tokens[i] : 0;
    }
    last = scores[s];
  }
  return out;
}

void drop_words(const MeasuredText& text, std::span<const double> information, int budget, Kept& kept) {
  SLUICE_CHECK_EQ(information.size(), kept.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i] && text.units.words[i].protection == Protection::None) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return information[a] < information[b]; });
  int used = kept_tokens(text, kept);
  for (const size_t i : order) {
    if (used <= budget) return;
    kept[i] = false;
    used -= text.tokens[i];
  }
}

std::string join_kept(const MeasuredText& text, const Kept& kept) {
  std::string out;
  bool line_ended = false;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Word& word = text.units.words[i];
    const std::string_view space = text.text.substr(word.bytes.begin, word.text_begin - word.bytes.begin);
    const bool has_line = space.find('\n') != std::string_view::npos;
    if (!kept[i]) {
      line_ended |= has_line;
      continue;
    }
    const bool replaced = line_ended && !has_line;
    if (replaced && !out.empty()) out += '\n';
    // Nothing but a mark keeps white space where words before it are gone.
    const bool drops_space = replaced || (out.empty() && i > 0);
    if (!drops_space || word.mark_covers_space) out += space;
    out += text.text.substr(word.text_begin, word.text().size());
    line_ended = false;
  }
  return out;
}

std::vector<int> plan_budgets(std::span<const int> tokens, const BudgetRule& rule) {
  const int64_t total = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  int64_t wanted =
      rule.max_tokens >= 0 ? rule.max_tokens : std::llround(rule.ratio * static_cast<double>(total));
  int64_t open = 0;  // tokens of the texts that are made shorter
  for (const int count : tokens) {
    if (count <= rule.min_keep) {
      wanted -= count;
    } else {
      open += count;
    }
  }
  const double share =
      open == 0 ? 1 : std::clamp(static_cast<double>(wanted) / static_cast<double>(open), 0.0, 1.0);
  std::vector<int> budgets;
  for (const int count : tokens) {
    const int fair = static_cast<int>(std::floor(share * count));
    budgets.push_back(count <= rule.min_keep ? count : std::max(fair, rule.min_keep));
  }
  return budgets;
}

}  // namespace sluice::compress
