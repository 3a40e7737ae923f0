// Unigram language model: of all ways to cut a word into tokens, the one with the highest sum of scores.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/models/bpe.h"
#include "tokenizer/models/byte_trie.h"

namespace sluice::tokenizer {

class UnigramModel {
 public:
  struct Entry {
    std::string_view text;
    Token id;
    double score;
  };
  // `unknown_score` is the price of a character that no token covers. Scores must be finite.
  UnigramModel(const std::vector<Entry>& entries, size_t vocab_size, double unknown_score,
               std::optional<Token> unknown, ByteTokens bytes);

  // Characters without a token: neighbouring ones together become one unknown token, or their bytes where
  // there are byte tokens; nothing where there is neither.
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Piece>& out) const;

 private:
  void search(std::string_view word, ModelScratch& scratch) const;
  void emit_unknown(std::string_view word, uint32_t begin, uint32_t end, std::vector<Piece>& out) const;

  ByteTrie trie_;
  std::vector<double> scores_;
  double unknown_score_;
  std::optional<Token> unknown_;
  ByteTokens bytes_;
};

}  // namespace sluice::tokenizer
