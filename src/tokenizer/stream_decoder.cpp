#include "tokenizer/stream_decoder.h"

#include <algorithm>

#include "tokenizer/tokenizer_data.h"
#include "unicode/unicode.h"

namespace sluice::tokenizer {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special, std::span<const Token> shown)
    : tokenizer_(&tokenizer), skip_special_(skip_special), shown_(shown) {}

std::string StreamDecoder::push(Token token) {
  const TokenizerData& data = tokenizer_->data();
  if (token < 0 || token >= tokenizer_->vocab_size()) return {};
  if (skip_special_ && tokenizer_->is_special(token) &&
      !std::binary_search(shown_.begin(), shown_.end(), token))
    return {};
  const bool repeats = data.decoder.drops_repeats && token == previous_;
  previous_ = token;
  if (repeats) return {};
  std::string bytes(owes_space_ ? " " : "");
  bytes += is_first_ ? first_piece(data, token) : std::string(tokenizer_->piece_bytes(token));
  is_first_ = false;
  const std::string& suffix = data.decoder.word_suffix;
  owes_space_ = !suffix.empty() && tokenizer_->spelling(token).ends_with(suffix) && bytes.ends_with(' ');
  if (owes_space_) bytes.pop_back();
  std::string text;
  stream_.push(bytes, text);
  return data.decoder.trimmed ? trim(std::move(text)) : text;
}

// Takes off what the decoder strips from the start, and holds back what it would strip from the end.
std::string StreamDecoder::trim(std::string text) {
  const DecodeStrip& strip = *tokenizer_->data().decoder.trimmed;
  std::string content;
  unicode::append_utf8(content, strip.content);
  text.insert(0, held_);
  held_.clear();
  size_t begin = 0;
  while (is_at_start_ && begin < text.size()) {
    is_at_start_ = stripped_ < strip.start && std::string_view(text).substr(begin).starts_with(content);
    if (!is_at_start_) break;
    begin += content.size();
    ++stripped_;
  }
  size_t end = text.size();
  for (size_t i = 0; i < strip.stop && std::string_view(text).substr(begin, end - begin).ends_with(content);
       ++i) {
    end -= content.size();
  }
  held_ = text.substr(end);
  return text.substr(begin, end - begin);
}

std::string StreamDecoder::finish() {
  std::string text;
  stream_.finish(text);
  if (tokenizer_->data().decoder.trimmed && !text.empty()) text = trim(std::move(text));
  *this = StreamDecoder(*tokenizer_, skip_special_, shown_);
  return text;
}

}  // namespace sluice::tokenizer
