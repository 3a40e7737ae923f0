// Tokens that are found in a text as a whole, before the rest of it is tokenized.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/models/byte_trie.h"
#include "tokenizer/models/token_table.h"
#include "unicode/aligned_text.h"

namespace sluice::tokenizer {

struct AddedToken {
  Token id = no_token;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;  // looked for in the normalized text
  bool is_single_word = false;
  bool strips_left = false, strips_right = false;  // takes the white space beside it
};

// A stretch of text, or a token that was found there.
struct Fragment {
  unicode::TextRange range;
  Token id = no_token;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Leftmost, then longest. Special tokens are found only where `may_be_special(range)` says so. Adjacent
  // fragments cover the whole text, none is empty.
  using Permission = std::function<bool(unicode::TextRange)>;
  std::vector<Fragment> split(std::string_view text, const Permission& may_be_special) const;

  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const AddedToken* longest_at(std::string_view text, size_t begin, const Permission& may_be_special) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // values are indices of tokens_
};

}  // namespace sluice::tokenizer
