// WordPiece: the longest token that a word starts with, then the longest continuation, and so on to its end;
// a word that cannot be covered is one unknown token. And whole words as tokens.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/models/bpe.h"
#include "tokenizer/models/byte_trie.h"

namespace sluice::tokenizer {

class WordPieceModel {
 public:
  using Entries = std::vector<std::pair<std::string_view, int32_t>>;
  // `starts` begin a word, `continuations` (without their mark) go on with it. Longer words than
  // `longest_word` characters are unknown.
  WordPieceModel(Entries starts, Entries continuations, std::optional<Token> unknown, size_t longest_word)
      : starts_(std::move(starts)),
        continuations_(std::move(continuations)),
        unknown_(unknown),
        longest_word_(longest_word) {}

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const;

 private:
  bool cover(std::string_view word, std::vector<Piece>& out) const;

  ByteTrie starts_, continuations_;
  std::optional<Token> unknown_;
  size_t longest_word_;
};

class WordLevelModel {
 public:
  WordLevelModel(TokenTable table, std::optional<Token> unknown)
      : table_(std::move(table)), unknown_(unknown) {}

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const;

 private:
  TokenTable table_;
  std::optional<Token> unknown_;
};

}  // namespace sluice::tokenizer
