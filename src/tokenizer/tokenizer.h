// Text to tokens and back, as the makers of a model defined it: from GGUF metadata or from a folder with
// tokenizer.json. A Tokenizer never changes after loading and may be used by many threads at once.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/interrupt.h"
#include "base/result.h"
#include "formats/gguf/gguf.h"

namespace sluice::tokenizer {

enum class TokenKind : uint8_t {
  Normal,       // made by the model of the tokenizer from plain text
  Byte,         // one byte, for text that no normal token covers
  UserDefined,  // matched as a whole in any text
  Control,      // structure, never part of a text: matched only where special tokens are parsed
  Unknown,      // stands for text that cannot be written in this vocabulary
  Unused,       // a hole in the vocabulary
};

struct EncodeOptions {
  bool parse_special = false;  // a text that spells a control token becomes that token
  bool add_special = false;  // put the tokens around it that the model was trained with (BOS, EOS, CLS, SEP)
  Interrupt* interrupt = nullptr;  // may stop the encoding; null: nothing does
};

// A part of a prompt. What a user typed never becomes a control token, and neither does a control token that
// is spelled partly by a user and partly by the template.
struct TextSpan {
  std::string_view text;
  bool is_user_input = true;
};

// A token and the bytes of the input that it stands for; empty for a token that was added.
struct TokenRange {
  Token id = 0;
  size_t begin = 0, end = 0;
};

struct SpecialTokens {
  std::optional<Token> bos, eos, pad, unknown;
  std::vector<Token> end_of_generation;  // ascending; eos, end of turn, end of message and the like
  std::vector<Token> prefix, suffix;     // what add_special puts before and after a text
};

// Jinja source; the name is "default" where the file gives none.
struct TemplateSource {
  std::string name;
  std::string source;
};

// How few tokens bytes can become.
struct ByteBound {
  using Bytes = std::bitset<256>;
  Bytes counted;          // others may be left out
  size_t most_bytes = 0;  // counted ones that a token stands for; 0: any number

  size_t least_tokens(std::string_view text) const;
};

struct TokenizerData;  // tokenizer_data.h

class Tokenizer {
 public:
  explicit Tokenizer(std::unique_ptr<const TokenizerData> data);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Bytes that are not UTF-8 count as U+FFFD. Errors: text over 1 GiB, a pattern from the file that needs more match
  // steps than the text's budget, and those of the interrupt.
  Result<std::vector<Token>> encode(std::string_view text, EncodeOptions options = {}) const;
  // The spans as one text: tokens may cross the border of two spans. parse_special holds for the template's
  // spans.
  Result<std::vector<Token>> encode(std::span<const TextSpan> spans, EncodeOptions options = {}) const;
  Result<std::vector<TokenRange>> encode_with_ranges(std::string_view text, EncodeOptions options = {}) const;

  // The text of the tokens, always valid UTF-8; ids out of range are left out. StreamDecoder gives the same
  // text in pieces.
  std::string decode(std::span<const Token> tokens, bool skip_special = false) const;

  // The bytes of a token in the middle of a text: may be part of a character, starts with the space where it
  // stands for one. Empty for an id out of range and for unused tokens. Views live as long as the tokenizer.
  std::string_view piece_bytes(Token id) const;
  // The token as the file spells it ("Ġthe", "▁the", "<0x0A>", "<|im_end|>").
  std::string_view spelling(Token id) const;
  std::optional<Token> find(std::string_view spelling) const;

  // Tokens that a text has at least, by its bytes alone, which is found much faster than its tokens. 0 where nothing can
  // be said: some tokenizers leave text out, or make one token of any number of characters they do not know.
  size_t least_tokens(std::string_view text) const { return byte_bound_.least_tokens(text); }

  int64_t vocab_size() const;
  TokenKind kind(Token id) const;  // Unused for an id out of range
  // Control and unknown tokens: what skip_special leaves out.
  bool is_special(Token id) const;
  const SpecialTokens& special() const;

  const std::vector<TemplateSource>& chat_templates() const;
  // nullptr where there is none of this name
  const TemplateSource* find_chat_template(std::string_view name = "default") const;

  const TokenizerData& data() const { return *data_; }

 private:
  std::unique_ptr<const TokenizerData> data_;
  ByteBound byte_bound_;
};

// tokenizer.ggml.* of a model file, or of a file that holds only a vocabulary.
Result<Tokenizer> load_tokenizer_gguf(const formats::GgufMetadata& metadata);
// A folder with tokenizer.json and, where present, tokenizer_config.json, special_tokens_map.json,
// generation_config.json and chat_template.jinja.
Result<Tokenizer> load_tokenizer_hf(const std::string& folder);
// The text of a tokenizer.json alone.
Result<Tokenizer> parse_tokenizer_json(std::string_view text);
// Either of them: a folder, a tokenizer.json or a .gguf file.
Result<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace sluice::tokenizer
