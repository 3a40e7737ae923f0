// The tokens of a model as a grammar sees them: bytes, and which of them end an answer.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/tokenizer.h"

namespace sluice::grammar {

// Never changes once it is made; may be used by many threads at once.
class Vocabulary {
 public:
  // `width` is that of a row of logits, at least the tokenizer's own. Control tokens are never part of a constrained text,
  // but for those of `marks` in structural tags, where they stand for their spelling; those of `end_tokens` end it.
  Vocabulary(const tokenizer::Tokenizer& tokenizer, int width, std::vector<Token> end_tokens,
             std::vector<Token> marks = {});
  // Tokens given by their bytes; empty: never part of a text.
  Vocabulary(std::vector<std::string> tokens, std::vector<Token> end_tokens);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int width() const { return static_cast<int>(tokens_.size()); }
  // Words of a mask: one bit for each token.
  size_t mask_words() const { return (tokens_.size() + 31) / 32; }
  const std::vector<Token>& end_tokens() const { return end_tokens_; }
  // Bytes that the token stands for, of control tokens their spelling.
  std::string_view text(Token token) const;

  struct Library;  // what xgrammar keeps of it
  const Library& library() const { return *library_; }
  const Library& library_with_marks() const;
  // Tokens of nothing but spaces and line breaks.
  const std::vector<Token>& blank_tokens() const { return blank_tokens_; }

 private:
  std::unique_ptr<Library> make_library(const std::vector<std::string>& tokens) const;

  std::vector<std::string> tokens_;
  std::vector<std::string> control_;  // spelling of those that have no bytes
  std::vector<Token> end_tokens_, blank_tokens_, marks_;
  std::unique_ptr<Library> library_;
  mutable std::once_flag marked_once_;
  mutable std::unique_ptr<Library> marked_;  // made when it is first asked for; null where there are no marks
};

}  // namespace sluice::grammar
