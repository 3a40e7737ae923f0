#include "compress/information.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "compress/engine_calls.h"

namespace sluice::compress {

namespace {

// Tokens of sentences that are scored together: with fewer the question, which is behind each group, costs more than they.
constexpr size_t kGroupTokens = 64;
constexpr size_t kGroupMost = 192;    // tokens of a group
constexpr size_t kQuestionMost = 48;  // tokens of the question, its last
constexpr size_t kWindow = 512;       // tokens of kept text that see each other
constexpr size_t kWindowOverlap = 64;

std::vector<Token> opening(const Model& model) {
  std::vector<Token> tokens;
  if (model.tokenizer->special().bos) tokens.push_back(*model.tokenizer->special().bos);
  return tokens;
}

std::string_view sentence_text(const MeasuredText& text, size_t first, size_t end) {
  const std::vector<Word>& words = text.units.words;
  const size_t begin = words[text.units.sentences[first].first].bytes.begin;
  return text.text.substr(begin, words[text.units.sentences[end - 1].end - 1].bytes.end - begin);
}

// Groups [first, end) of sentences.
std::vector<std::pair<size_t, size_t>> group_sentences(const MeasuredText& text) {
  std::vector<std::pair<size_t, size_t>> groups;
  size_t first = 0, tokens = 0;
  for (size_t s = 0; s < text.units.sentences.size(); ++s) {
    const Sentence& sentence = text.units.sentences[s];
    for (size_t i = sentence.first; i < sentence.end; ++i) tokens += static_cast<size_t>(text.tokens[i]);
    if (tokens < kGroupTokens && s + 1 < text.units.sentences.size()) continue;
    groups.emplace_back(first, s + 1);
    first = s + 1;
    tokens = 0;
  }
  return groups;
}

double mean(const std::vector<float>& values) {
  return values.empty()
             ? 0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The information of tokens to the words that they begin in.
void add_to_words(const std::vector<tokenizer::TokenRange>& tokens, const std::vector<double>& information,
                  const std::vector<std::pair<size_t, size_t>>& word_at, std::vector<double>& out) {
  size_t word = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (word + 1 < word_at.size() && word_at[word + 1].first <= tokens[i].begin) ++word;
    out[word_at[word].second] += information[i];
  }
}

// Windows over the tokens, each with some of those before it.
struct Windows {
  std::vector<ScoredSequence> sequences;
  std::vector<size_t> begins;  // token of the text that a window's first score is of
};

Windows make_windows(const Model& model, const std::vector<tokenizer::TokenRange>& tokens) {
  Windows windows;
  for (size_t begin = 0; begin < tokens.size(); begin += kWindow) {
    const size_t end = std::min(tokens.size(), begin + kWindow);
    ScoredSequence sequence{.tokens = opening(model)};
    const size_t before = begin - std::min(begin, kWindowOverlap);
    for (size_t i = before; i < end; ++i) sequence.tokens.push_back(tokens[i].id);
    // The first token of a text without an opening cannot be scored.
    const size_t first = sequence.tokens.size() - (end - begin);
    sequence.from = static_cast<int>(std::max<size_t>(1, first));
    windows.begins.push_back(begin + (first == 0 ? 1 : 0));
    if (sequence.tokens.size() < 2) {
      windows.begins.pop_back();
      continue;
    }
    windows.sequences.push_back(std::move(sequence));
  }
  return windows;
}

}  // namespace

Result<MeasuredText> measure(const tokenizer::Tokenizer& tokenizer, const Text& text, Interrupt* interrupt) {
  std::vector<ByteRange> marked = text.marked;
  if (text.question.size() > 0) marked.push_back(text.question);
  MeasuredText out{.text = text.text, .units = split_text(text.text, marked), .tokens = {}};
  Result<std::vector<tokenizer::TokenRange>> tokens =
      tokenizer.encode_with_ranges(text.text, {.interrupt = interrupt});
  if (!tokens) return tokens.error();
  out.tokens.resize(out.units.words.size());
  size_t word = 0;
  for (const tokenizer::TokenRange& token : *tokens) {
    while (word + 1 < out.tokens.size() && out.units.words[word + 1].bytes.begin <= token.begin) ++word;
    if (word < out.tokens.size()) ++out.tokens[word];
  }
  return out;
}

Result<std::vector<double>> question_scores(const Model& model, const MeasuredText& text,
                                            std::string_view question, const Caller& caller) {
  Result<std::vector<Token>> asked =
      model.tokenizer->encode("\n" + std::string(question), {.interrupt = caller.interrupt});
  if (!asked) return asked.error();
  if (asked->size() > kQuestionMost)
    asked->erase(asked->begin(), asked->end() - static_cast<std::ptrdiff_t>(kQuestionMost));
  const std::vector<std::pair<size_t, size_t>> groups = group_sentences(text);
  std::vector<ScoredSequence> sequences;
  for (const auto& [first, end] : groups) {
    Result<std::vector<Token>> tokens =
        model.tokenizer->encode(sentence_text(text, first, end), {.interrupt = caller.interrupt});
    if (!tokens) return tokens.error();
    if (tokens->size() > kGroupMost) tokens->resize(kGroupMost);
    ScoredSequence sequence{.tokens = opening(model)};
    sequence.tokens.insert(sequence.tokens.end(), tokens->begin(), tokens->end());
    sequence.from = static_cast<int>(std::max<size_t>(1, sequence.tokens.size()));
    sequence.tokens.insert(sequence.tokens.end(), asked->begin(), asked->end());
    sequences.push_back(std::move(sequence));
  }
  Result<std::vector<std::vector<float>>> scored = score(model, std::move(sequences), caller);
  if (!scored) return scored.error();
  std::vector<double> out(text.units.sentences.size());
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = groups[g].first; s < groups[g].second; ++s) out[s] = mean((*scored)[g]);
  return out;
}

Result<std::vector<double>> word_information(const Model& model, const MeasuredText& text, const Kept& kept,
                                             const Caller& caller) {
  std::string joined;
  std::vector<std::pair<size_t, size_t>> word_at;  // where a kept word begins in `joined`, and its number
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    word_at.emplace_back(joined.size(), i);
    const ByteRange bytes = text.units.words[i].bytes;
    joined += text.text.substr(bytes.begin, bytes.size());
  }
  std::vector<double> out(kept.size());
  if (word_at.empty()) return out;
  Result<std::vector<tokenizer::TokenRange>> tokens =
      model.tokenizer->encode_with_ranges(joined, {.interrupt = caller.interrupt});
  if (!tokens) return tokens.error();
  Windows windows = make_windows(model, *tokens);
  Result<std::vector<std::vector<float>>> scored = score(model, std::move(windows.sequences), caller);
  if (!scored) return scored.error();
  std::vector<double> information(tokens->size());
  for (size_t w = 0; w < scored->size(); ++w)
    for (size_t i = 0; i < (*scored)[w].size(); ++i) information[windows.begins[w] + i] = -(*scored)[w][i];
  add_to_words(*tokens, information, word_at, out);
  return out;
}

}  // namespace sluice::compress
