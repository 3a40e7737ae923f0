// Tokens in, text out, one token at a time.
#pragma once

#include <span>
#include <string>

#include "tokenizer/tokenizer.h"
#include "unicode/utf8_stream.h"

namespace sluice::tokenizer {

// The pieces that push() and finish() return, put together, are exactly Tokenizer::decode() of the same
// tokens; each piece is valid UTF-8. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  // `shown`: special tokens that are not skipped, ascending; outlives the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false,
                         std::span<const Token> shown = {});

  // The text that is certain after this token; may be empty. Ids out of range give nothing.
  std::string push(Token token);
  // The rest: a character that was left unfinished gives U+FFFD. The decoder can then start anew.
  std::string finish();

 private:
  std::string trim(std::string text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::span<const Token> shown_;
  bool is_first_ = true;     // no token yet
  bool is_at_start_ = true;  // no text yet but what was stripped
  size_t stripped_ = 0;      // characters taken off the start
  Token previous_ = -1;
  bool owes_space_ = false;  // the last token ended a word: a space, unless the text ends here
  std::string held_;         // characters that are dropped if the text ends here
  unicode::Utf8Stream stream_;
};

}  // namespace sluice::tokenizer
