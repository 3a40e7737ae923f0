#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer_data.h"

namespace sluice::tokenizer {

namespace {

std::vector<Token> ids_of(const std::vector<TokenRange>& tokens) {
  std::vector<Token> ids;
  ids.reserve(tokens.size());
  for (const TokenRange& token : tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerData> data)
    : data_(std::move(data)), byte_bound_(make_byte_bound(*data_)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const auto tokens = encode_text(*data_, {text, {}, options, false});
  if (!tokens) return tokens.error();
  return ids_of(*tokens);
}

Result<std::vector<Token>> Tokenizer::encode(std::span<const TextSpan> spans, EncodeOptions options) const {
  std::string text;
  std::vector<unicode::TextRange> user;
  for (const TextSpan& span : spans) {
    const size_t begin = text.size();
    text += span.text;
    if (text.size() > longest_text) break;
    if (!span.is_user_input || span.text.empty()) continue;
    const unicode::TextRange range{static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size())};
    if (!user.empty() && user.back().end == range.begin) {
      user.back().end = range.end;
    } else {
      user.push_back(range);
    }
  }
  const auto tokens = encode_text(*data_, {text, std::move(user), options, false});
  if (!tokens) return tokens.error();
  return ids_of(*tokens);
}

Result<std::vector<TokenRange>> Tokenizer::encode_with_ranges(std::string_view text,
                                                              EncodeOptions options) const {
  return encode_text(*data_, {text, {}, options, true});
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const Token token : tokens) text += decoder.push(token);
  text += decoder.finish();
  return text;
}

std::string_view Tokenizer::piece_bytes(Token id) const {
  return data_->pieces.text(id);
}
std::string_view Tokenizer::spelling(Token id) const {
  return data_->spellings.text(id);
}

std::optional<Token> Tokenizer::find(std::string_view spelling) const {
  const Token id = data_->spellings.find(spelling);
  return id == no_token ? std::nullopt : std::optional(id);
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(data_->kinds.size());
}

TokenKind Tokenizer::kind(Token id) const {
  return id < 0 || id >= vocab_size() ? TokenKind::Unused : data_->kinds[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(Token id) const {
  const TokenKind kind = this->kind(id);
  return kind == TokenKind::Control || kind == TokenKind::Unknown;
}

const SpecialTokens& Tokenizer::special() const {
  return data_->special;
}
const std::vector<TemplateSource>& Tokenizer::chat_templates() const {
  return data_->chat_templates;
}

const TemplateSource* Tokenizer::find_chat_template(std::string_view name) const {
  for (const TemplateSource& entry : data_->chat_templates) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

namespace {

Result<std::string> render(const TokenizerData& data, Token id, bool is_first) {
  const TokenKind kind = data.kinds[static_cast<size_t>(id)];
  const std::string_view spelling = data.spellings.text(id);
  if (kind == TokenKind::Unused) return std::string();
  if (data.decoder.keeps_added && kind != TokenKind::Normal && kind != TokenKind::Byte)
    return std::string(spelling);
  return render_token(data.decoder, spelling, is_first);
}

}  // namespace

Status render_pieces(TokenizerData& data) {
  data.pieces = TokenTable(data.kinds.size());
  for (size_t i = 0; i < data.kinds.size(); ++i) {
    const auto id = static_cast<Token>(i);
    const auto piece = render(data, id, false);
    if (!piece) return piece.error();
    data.pieces.set(id, *piece);
  }
  return {};
}

std::string first_piece(const TokenizerData& data, Token id) {
  // A spelling that was rendered when the pieces were made renders here too.
  auto piece = render(data, id, true);
  return piece.ok() ? std::move(*piece) : std::string(data.pieces.text(id));
}

void add_known_end_tokens(TokenizerData& data) {
  constexpr std::string_view names[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<|end_of_text|>",
                                        "<eos>",
                                        "<turn|>",
                                        "[e~[",
                                        "<end_of_utterance>",
                                        "<｜end▁of▁sentence｜>",
                                        "</s>",
                                        "<|tool_response>"};
  std::vector<Token>& ends = data.special.end_of_generation;
  const auto has = [&](std::string_view name) { return data.spellings.find(name) != no_token; };
  // In these families a message may end without the answer being over.
  const bool ends_are_messages =
      (has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>"));
  for (const std::string_view name : names) {
    const Token id = data.spellings.find(name);
    if (id == no_token) continue;
    // Some files say these are ordinary added tokens. A tag of a text that was learned as a word is not
    // meant.
    TokenKind& kind = data.kinds[static_cast<size_t>(id)];
    if (kind == TokenKind::UserDefined) kind = TokenKind::Control;
    if (kind != TokenKind::Control) continue;
    if (name == "<|end|>" && ends_are_messages) continue;
    if (name == "</s>" && has("<|tool_response>")) continue;
    ends.push_back(id);
  }
  if (data.special.eos) ends.push_back(*data.special.eos);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace sluice::tokenizer
