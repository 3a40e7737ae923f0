// What a Tokenizer is made of. Loaders fill it, the encoder and the decoders read it.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/models/bpe.h"
#include "tokenizer/models/token_table.h"
#include "tokenizer/models/unigram.h"
#include "tokenizer/models/word_piece.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer.h"

namespace sluice::tokenizer {

// monostate: a vocabulary that no text can be written in.
using TokenModel = std::variant<std::monostate, BpeModel, UnigramModel, WordPieceModel, WordLevelModel>;

struct TokenizerData {
  TokenTable spellings;          // as the file has them, findable
  std::vector<TokenKind> kinds;  // [vocab]
  AddedTokens added;             // found in the text as it is
  AddedTokens added_normalized;  // found in the normalized text
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  TokenModel model;
  TokenDecoder decoder;
  TokenTable pieces;  // bytes in the middle of a text
  SpecialTokens special;
  std::vector<TemplateSource> chat_templates;
};

// For a file that cannot be read as a tokenizer.
inline Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, std::move(message)};
}

inline constexpr size_t longest_text = size_t{1} << 30;
inline constexpr size_t largest_vocabulary = size_t{1} << 24;

// Sets the pieces from the spellings, the kinds and the decoder.
Status render_pieces(TokenizerData& data);
// For Tokenizer::least_tokens(). REQUIRES: the pieces are set.
ByteBound make_byte_bound(const TokenizerData& data);
// The text of a token at the start of a text.
std::string first_piece(const TokenizerData& data, Token id);

// Words for the end of an answer in the vocabularies of known families: what generation stops at besides eos.
void add_known_end_tokens(TokenizerData& data);

// The whole way from text to tokens. `user` are the ranges where no special token may touch, ascending.
struct EncodeRequest {
  std::string_view text;
  std::vector<unicode::TextRange> user;
  EncodeOptions options;
  bool wants_ranges = false;
};
Result<std::vector<TokenRange>> encode_text(const TokenizerData& data, const EncodeRequest& request);

}  // namespace sluice::tokenizer
