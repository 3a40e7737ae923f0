#include "tokenizer/models/unigram.h"

#include <algorithm>
#include <limits>

#include "unicode/unicode.h"

namespace sluice::tokenizer {

UnigramModel::UnigramModel(const std::vector<Entry>& entries, size_t vocab_size, double unknown_score,
                           std::optional<Token> unknown, ByteTokens bytes)
    : scores_(vocab_size, 0.0), unknown_score_(unknown_score), unknown_(unknown), bytes_(bytes) {
  std::vector<std::pair<std::string_view, int32_t>> texts;
  texts.reserve(entries.size());
  for (const Entry& entry : entries) {
    texts.emplace_back(entry.text, entry.id);
    scores_[static_cast<size_t>(entry.id)] = entry.score;
  }
  trie_ = ByteTrie(std::move(texts));
}

// steps[i]: the best way to reach byte i, its last token (no_token: a character without one) and where that
// begins.
void UnigramModel::search(std::string_view word, ModelScratch& scratch) const {
  std::vector<ModelScratch::Step>& steps = scratch.steps;
  constexpr double unreached = -std::numeric_limits<double>::infinity();
  steps.assign(word.size() + 1, {unreached, 0, no_token});
  steps[0].score = 0;
  const auto offer = [&](size_t end, ModelScratch::Step step) {
    if (step.score > steps[end].score) steps[end] = step;
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t size = unicode::decode_utf8(word, begin).size;
    if (!scratch.go_on(size)) return;
    const double score = steps[begin].score;
    const auto from = static_cast<uint32_t>(begin);
    bool covers_character = false;
    uint32_t node = ByteTrie::root;
    for (size_t end = begin; end < word.size();) {
      node = trie_.child(node, word[end]);
      if (node == ByteTrie::no_node) break;
      ++end;
      const Token id = trie_.value(node);
      if (id == ByteTrie::no_value) continue;
      offer(end, {score + scores_[static_cast<size_t>(id)], from, id});
      covers_character = covers_character || end - begin == size;
    }
    if (!covers_character) offer(begin + size, {score + unknown_score_, from, no_token});
    begin += size;
  }
}

void UnigramModel::emit_unknown(std::string_view word, uint32_t begin, uint32_t end,
                                std::vector<Piece>& out) const {
  if (bytes_.cover(word.substr(begin, end - begin))) {
    for (uint32_t i = begin; i < end; ++i) out.push_back({bytes_.of(word[i]), i, i + 1});
  } else if (unknown_) {
    out.push_back({*unknown_, begin, end});
  }
}

void UnigramModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const {
  search(word, scratch);
  const size_t first = out.size();
  for (auto end = static_cast<uint32_t>(word.size()); end > 0;) {
    const ModelScratch::Step& step = scratch.steps[end];
    out.push_back({step.id, step.begin, end});
    end = step.begin;
  }
  std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
  const std::vector<Piece> path(out.begin() + static_cast<ptrdiff_t>(first), out.end());
  out.resize(first);
  for (size_t i = 0; i < path.size();) {
    if (path[i].id != no_token) {
      out.push_back(path[i++]);
      continue;
    }
    const uint32_t begin = path[i].begin;
    while (i < path.size() && path[i].id == no_token) ++i;
    emit_unknown(word, begin, path[i - 1].end, out);
  }
}

}  // namespace sluice::tokenizer
