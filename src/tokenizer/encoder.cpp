// Text to tokens: added tokens are cut out, the rest is normalized, cut into words and given to the model.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/tokenizer_data.h"
#include "unicode/utf8_stream.h"

namespace sluice::tokenizer {

namespace {

// Valid UTF-8 that knows which bytes of the input each of its characters came from.
unicode::AlignedText to_aligned_utf8(std::string_view input, bool is_tracked) {
  unicode::AlignedText text(is_tracked);
  unicode::Utf8Stream stream;
  std::string out;
  uint32_t begin = 0;
  for (uint32_t i = 0; i < input.size(); ++i) {
    out.clear();
    stream.push(input.substr(i, 1), out);
    if (out.empty()) continue;
    const auto end = static_cast<uint32_t>(i + 1 - stream.held());
    text.append(out, {begin, end});
    begin = end;
  }
  out.clear();
  stream.finish(out);
  text.append(out, {begin, static_cast<uint32_t>(input.size())});
  return text;
}

class Encoder {
 public:
  Encoder(const TokenizerData& data, const EncodeRequest& request)
      : data_(data), request_(request), guard_(request.text.size(), request.options.interrupt) {
    scratch_.guard = &guard_;
  }

  Result<std::vector<TokenRange>> run() {
    const bool is_valid = unicode::is_valid_utf8(request_.text);
    // Origins also tell which part of a rewritten text is the user's.
    const bool is_tracked = request_.wants_ranges || !request_.user.empty();
    unicode::AlignedText text(is_tracked);
    if (is_valid) {
      text.append_input(request_.text, 0);
    } else {
      text = to_aligned_utf8(request_.text, is_tracked);
    }
    tokens_.reserve(text.size() / 4 + 8);
    if (request_.options.add_special) push_added(data_.special.prefix);
    if (Status status = encode_raw(text); !status) return status.error();
    if (request_.options.add_special) push_added(data_.special.suffix);
    return std::move(tokens_);
  }

 private:
  void push_added(const std::vector<Token>& ids) {
    for (const Token id : ids) tokens_.push_back({id, 0, 0});
  }

  bool may_be_special(const unicode::AlignedText& text, unicode::TextRange range) const {
    if (!request_.options.parse_special) return false;
    if (request_.user.empty()) return true;
    const unicode::TextRange origin = text.origin(range);
    const auto after =
        std::partition_point(request_.user.begin(), request_.user.end(),
                             [&](const unicode::TextRange& user) { return user.end <= origin.begin; });
    return after == request_.user.end() || after->begin >= origin.end;
  }

  std::vector<Fragment> split(const AddedTokens& added, const unicode::AlignedText& text) const {
    if (added.empty()) return {{{0, static_cast<uint32_t>(text.size())}, no_token}};
    return added.split(text.bytes(), [&](unicode::TextRange range) { return may_be_special(text, range); });
  }

  void push_token(Token id, unicode::TextRange origin) { tokens_.push_back({id, origin.begin, origin.end}); }

  Status encode_raw(const unicode::AlignedText& text) {
    for (const Fragment& fragment : split(data_.added, text)) {
      if (fragment.id != no_token) {
        push_token(fragment.id, text.origin(fragment.range));
        continue;
      }
      unicode::AlignedText part(text.is_tracked());
      part.append(text, fragment.range);
      auto normalized = normalize(data_.normalizer, std::move(part), &guard_);
      if (!normalized) return normalized.error();
      if (Status status = encode_normalized(*normalized, fragment.range.begin == 0); !status) return status;
    }
    return {};
  }

  Status encode_normalized(const unicode::AlignedText& text, bool is_at_start) {
    for (const Fragment& fragment : split(data_.added_normalized, text)) {
      if (fragment.id != no_token) {
        push_token(fragment.id, text.origin(fragment.range));
        continue;
      }
      unicode::AlignedText part(text.is_tracked());
      part.append(text, fragment.range);
      auto words = pre_tokenize(data_.pre_tokenizer, std::move(part),
                                is_at_start && fragment.range.begin == 0, &guard_);
      if (!words) return words.error();
      if (Status status = encode_words(*words); !status) return status;
    }
    return {};
  }

  Status encode_words(const Words& words) {
    for (const unicode::TextRange word : words.ranges) {
      pieces_.clear();
      tokenize(words.text.bytes(word));
      for (const Piece& piece : pieces_) {
        const unicode::TextRange range{word.begin + piece.begin, word.begin + piece.end};
        push_token(piece.id, words.text.is_tracked() ? words.text.origin(range) : unicode::TextRange{});
      }
      if (!guard_.go_on(word.size())) break;
    }
    return guard_.status();
  }

  void tokenize(std::string_view word) {
    if (const auto* bpe = std::get_if<BpeModel>(&data_.model)) return bpe->tokenize(word, scratch_, pieces_);
    if (const auto* unigram = std::get_if<UnigramModel>(&data_.model)) {
      return unigram->tokenize(word, scratch_, pieces_);
    }
    if (const auto* pieces = std::get_if<WordPieceModel>(&data_.model)) {
      return pieces->tokenize(word, scratch_, pieces_);
    }
    if (const auto* whole = std::get_if<WordLevelModel>(&data_.model))
      whole->tokenize(word, scratch_, pieces_);
  }

  const TokenizerData& data_;
  const EncodeRequest& request_;
  unicode::EncodeGuard guard_;
  ModelScratch scratch_;
  std::vector<Piece> pieces_;
  std::vector<TokenRange> tokens_;
};

}  // namespace

Result<std::vector<TokenRange>> encode_text(const TokenizerData& data, const EncodeRequest& request) {
  if (request.text.size() > longest_text) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a text of {} bytes to tokenize, limit {}", request.text.size(), longest_text)};
  }
  return Encoder(data, request).run();
}

}  // namespace sluice::tokenizer
