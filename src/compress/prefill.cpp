#include "compress/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compress/engine_calls.h"

namespace sluice::compress {

namespace {

constexpr int kLookAhead = 8;      // tokens that the small model writes
constexpr size_t kNeighbours = 6;  // on either side of a token, whose weights it shares

// A text where it was found: byte `at` of the prompt is byte `from` of the text.
struct FoundText {
  size_t at = 0, from = 0, size = 0;
};

std::optional<FoundText> find_text(const std::string& prompt, std::string_view text, size_t behind) {
  if (text.empty()) return std::nullopt;
  if (const size_t at = prompt.find(text, behind); at != std::string::npos)
    return FoundText{at, 0, text.size()};
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  const size_t at = prompt.find(text, behind);
  if (at == std::string::npos) return std::nullopt;
  return FoundText{at, begin, text.size()};
}

// Sets those of the tokens that overlap bytes [begin, end) of the prompt; `ends` has where each of them ends.
void set_tokens(const std::vector<size_t>& ends, size_t begin, size_t end, bool value,
                std::vector<bool>& out) {
  auto token = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
  for (; token < ends.size() && (token == 0 ? 0 : ends[token - 1]) < end; ++token) out[token] = value;
}

// Bytes of the text that must stay.
std::vector<ByteRange> protected_ranges(const Text& text) {
  std::vector<ByteRange> marked = text.marked;
  if (text.question.size() > 0) marked.push_back(text.question);
  MeasuredText measured{.text = text.text, .units = split_text(text.text, marked), .tokens = {}};
  const Kept kept = protected_words(measured);
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) marked.push_back(measured.units.words[i].text());
  return marked;
}

std::vector<double> smooth(std::span<const float> weights) {
  std::vector<double> sums(weights.size() + 1), out(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) sums[i + 1] = sums[i] + static_cast<double>(weights[i]);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t begin = i - std::min(i, kNeighbours), end = std::min(weights.size(), i + kNeighbours + 1);
    out[i] = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
  }
  return out;
}

struct Chunk {
  size_t begin = 0, end = 0;
  int tokens = 0;  // that may go
  double weight = 0;
};

std::vector<Chunk> chunks_of(const TextTokens& tokens, std::span<const float> weights) {
  const std::vector<double> smoothed = smooth(weights);
  std::vector<Chunk> chunks;
  for (size_t begin = 0; begin < weights.size(); begin += kChunk) {
    Chunk chunk{.begin = begin, .end = std::min(weights.size(), begin + kChunk)};
    for (size_t i = chunk.begin; i < chunk.end; ++i) {
      if (tokens.fixed[i]) continue;
      ++chunk.tokens;
      chunk.weight += smoothed[i];
    }
    if (chunk.tokens == 0) continue;
    chunk.weight /= chunk.tokens;
    chunks.push_back(chunk);
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk& a, const Chunk& b) { return a.weight > b.weight; });
  return chunks;
}

}  // namespace

TextTokens find_texts(const tokenizer::Tokenizer& tokenizer, std::span<const Token> tokens,
                      std::span<const Text> texts) {
  std::string prompt;
  std::vector<size_t> ends;
  for (const Token token : tokens) {
    prompt += tokenizer.piece_bytes(token);
    ends.push_back(prompt.size());
  }
  TextTokens out{std::vector<bool>(tokens.size(), false), std::vector<bool>(tokens.size(), true)};
  size_t behind = 0;
  for (const Text& text : texts) {
    const std::optional<FoundText> found = find_text(prompt, text.text, behind);
    if (!found) continue;
    behind = found->at + found->size;
    set_tokens(ends, found->at, behind, true, out.in_text);
    set_tokens(ends, found->at, behind, false, out.fixed);
    for (const ByteRange& range : protected_ranges(text)) {
      const size_t begin = std::clamp(range.begin, found->from, found->from + found->size);
      const size_t end = std::clamp(range.end, found->from, found->from + found->size);
      if (begin < end)
        set_tokens(ends, found->at + begin - found->from, found->at + end - found->from, true, out.fixed);
    }
  }
  // What the model continues stays, and what it turns its attention to when nothing else matters.
  if (!tokens.empty()) out.fixed.front() = out.fixed.back() = true;
  return out;
}

std::vector<int32_t> choose_chunks(const TextTokens& tokens, std::span<const float> weights, int budget) {
  SLUICE_CHECK_EQ(weights.size(), tokens.fixed.size());
  std::vector<bool> kept = tokens.fixed;
  int used = 0;
  for (size_t i = 0; i < kept.size(); ++i) used += kept[i] && tokens.in_text[i] ? 1 : 0;
  for (const Chunk& chunk : chunks_of(tokens, weights)) {
    if (used + chunk.tokens > budget) continue;
    used += chunk.tokens;
    std::fill(kept.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
              kept.begin() + static_cast<std::ptrdiff_t>(chunk.end), true);
  }
  std::vector<int32_t> out;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) out.push_back(static_cast<int32_t>(i));
  return out;
}

Result<std::vector<float>> look_ahead(const Model& model, std::span<const Token> prompt,
                                      const Caller& caller) {
  if (static_cast<int64_t>(prompt.size()) + kLookAhead > model.context)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a prompt of {} tokens and a look-ahead of {} do not fit into the compressor's "
                             "context of {}",
                             prompt.size(), kLookAhead, model.context)};
  Result<std::vector<float>> weights = attend(model, {prompt.begin(), prompt.end()}, kLookAhead, caller);
  if (!weights) return weights.error();
  if (weights->size() != prompt.size())
    return Error{ErrorCode::Internal,
                 fmt::format("{} weights of attention for {} tokens", weights->size(), prompt.size())};
  return weights;
}

std::string shown_text(const tokenizer::Tokenizer& tokenizer, std::span<const Token> tokens,
                       const TextTokens& parts, std::span<const int32_t> kept) {
  constexpr std::string_view kGap = " … ";
  std::string out;
  std::vector<Token> run;
  const auto flush = [&] {
    out += tokenizer.decode(run);
    run.clear();
  };
  int32_t behind = -1;
  for (const int32_t index : kept) {
    if (!parts.in_text[static_cast<size_t>(index)]) continue;
    if (behind >= 0 && index != behind) {
      flush();
      out += kGap;
    }
    run.push_back(tokens[static_cast<size_t>(index)]);
    behind = index + 1;
  }
  flush();
  return out;
}

Status check_same_vocabulary(const tokenizer::Tokenizer& scorer, const tokenizer::Tokenizer& target) {
  const int64_t both = std::max(scorer.vocab_size(), target.vocab_size());
  for (Token token = 0; token < both; ++token) {
    if (scorer.piece_bytes(token) == target.piece_bytes(token)) continue;
    return Error{ErrorCode::Unsupported,
                 fmt::format("token {} of the compressor is another one than the model's: mode \"prefill\" "
                             "needs one vocabulary",
                             token)};
  }
  return {};
}

}  // namespace sluice::compress
