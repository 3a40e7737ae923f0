// How many tokens a text has at least, by its bytes.
#include <algorithm>

#include "tokenizer/tokenizer_data.h"

namespace sluice::tokenizer {

namespace {

// By how much a text can shrink in a step, at most; nothing where there is no limit or none is known.
std::optional<size_t> shrinkage(const NormalizerStep& step) {
  if (std::holds_alternative<Prepend>(step) || std::holds_alternative<MapBytes>(step)) return 1;
  // Three letters of three bytes become one Hangul syllable; nothing composes to less.
  if (const auto* form = std::get_if<unicode::UnicodeForm>(&step);
      form != nullptr && *form == unicode::UnicodeForm::Nfc)
    return 3;
  const auto* replaced = std::get_if<ReplacePattern>(&step);
  if (replaced == nullptr || !replaced->pattern.literal_size()) return std::nullopt;
  const bool grows = replaced->content.size() >= *replaced->pattern.literal_size();
  return grows ? std::optional<size_t>(1) : std::nullopt;
}

bool may_shrink(const PreTokenizerStep& step) {
  if (const auto* split = std::get_if<SplitStep>(&step)) return split->behavior == SplitBehavior::Removed;
  const auto* replaced = std::get_if<ReplaceStep>(&step);
  if (replaced == nullptr) return false;
  std::string from;
  unicode::append_utf8(from, replaced->from);
  return replaced->to.size() < from.size();
}

bool takes_space_beside(const AddedTokens& added) {
  return std::any_of(added.tokens().begin(), added.tokens().end(),
                     [](const AddedToken& token) { return token.strips_left || token.strips_right; });
}

// Bytes that are tokens by themselves, so that they are never left out or taken together as unknown.
ByteBound::Bytes single_bytes(const TokenizerData& data) {
  ByteBound::Bytes found;
  for (size_t i = 0; i < data.kinds.size(); ++i) {
    const std::string_view piece = data.pieces.text(static_cast<Token>(i));
    const bool plain = data.kinds[i] == TokenKind::Normal || data.kinds[i] == TokenKind::Byte;
    if (plain && piece.size() == 1) found.set(static_cast<unsigned char>(piece[0]));
  }
  return found;
}

bool covers_utf8(ByteBound::Bytes bytes) {
  for (const size_t never : {0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF})
    bytes.set(never);
  return bytes.all();
}

}  // namespace

ByteBound make_byte_bound(const TokenizerData& data) {
  size_t factor = 1;
  for (const NormalizerStep& step : data.normalizer) {
    const std::optional<size_t> shrinks = shrinkage(step);
    if (!shrinks) return {};
    factor *= *shrinks;
  }
  if (std::any_of(data.pre_tokenizer.begin(), data.pre_tokenizer.end(), may_shrink)) return {};
  if (takes_space_beside(data.added) || takes_space_beside(data.added_normalized)) return {};
  const auto* bpe = std::get_if<BpeModel>(&data.model);
  const bool bytewise = bpe != nullptr && bpe->takes_bytes();
  ByteBound bound{.counted = single_bytes(data)};
  // Where characters are looked up as a whole, one byte that is no token may lose all of them.
  const bool falls_back = bpe != nullptr || std::holds_alternative<UnigramModel>(data.model);
  if (!bytewise && !(falls_back && covers_utf8(bound.counted))) return {};
  for (size_t i = 0; i < data.kinds.size(); ++i) {
    const auto id = static_cast<Token>(i);
    // A mark for spaces may have been typed: then the token stands for what it is spelled with.
    const size_t spelled = bytewise ? 0 : data.spellings.text(id).size();
    bound.most_bytes = std::max({bound.most_bytes, data.pieces.text(id).size() * factor, spelled * factor});
  }
  return bound;
}

size_t ByteBound::least_tokens(std::string_view text) const {
  if (most_bytes == 0) return 0;
  const auto bytes = std::count_if(text.begin(), text.end(),
                                   [&](char byte) { return counted[static_cast<unsigned char>(byte)]; });
  return static_cast<size_t>(bytes) / most_bytes;
}

}  // namespace sluice::tokenizer
