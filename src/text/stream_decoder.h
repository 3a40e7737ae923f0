// Tokens in, text out, one token at a time.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace sluice::text {

// The pieces that push() and finish() return, put together, are exactly Tokenizer::decode() of the same
// tokens; each piece is valid UTF-8. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);

  // The text that is certain after this token; may be empty. Ids out of range give nothing.
  std::string push(Token token);
  // The rest: a character that was left unfinished gives U+FFFD. The decoder can then start anew.
  std::string finish();

 private:
  void append_piece(Token token);

  const TokenizerData* data_;
  bool skip_special_;
  bool at_start_ = true;    // no text yet: the leading space of the first piece is not part of the text
  int64_t strip_left_ = 0;  // characters that may still be taken off the start
  Token previous_ = -1;
  std::string bytes_;  // out of the tokens, not yet in the stream
  std::string held_;   // characters that are dropped if they turn out to be the end of the text
  Utf8Stream stream_;
};

}  // namespace sluice::text
