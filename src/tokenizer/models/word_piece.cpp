#include "tokenizer/models/word_piece.h"

#include "unicode/unicode.h"

namespace sluice::tokenizer {

bool WordPieceModel::cover(std::string_view word, std::vector<Piece>& out) const {
  size_t characters = 0;
  for (size_t i = 0; i < word.size(); i += unicode::decode_utf8(word, i).size) ++characters;
  if (characters > longest_word_) return false;
  for (size_t begin = 0; begin < word.size();) {
    const ByteTrie& trie = begin == 0 ? starts_ : continuations_;
    const ByteTrie::Match match = trie.longest_prefix(word.substr(begin));
    if (match.size == 0) return false;
    out.push_back({match.value, static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + match.size)});
    begin += match.size;
  }
  return true;
}

void WordPieceModel::tokenize(std::string_view word, ModelScratch&, std::vector<Piece>& out) const {
  const size_t first = out.size();
  if (cover(word, out)) return;
  out.resize(first);
  if (unknown_) out.push_back({*unknown_, 0, static_cast<uint32_t>(word.size())});
}

void WordLevelModel::tokenize(std::string_view word, ModelScratch&, std::vector<Piece>& out) const {
  Token id = table_.find(word);
  if (id == no_token && unknown_) id = *unknown_;
  if (id != no_token) out.push_back({id, 0, static_cast<uint32_t>(word.size())});
}

}  // namespace sluice::tokenizer
