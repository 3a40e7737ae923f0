// A model without weights for tests of the API: its tokens are the bytes of a text, and three control tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "unicode/unicode.h"

namespace sluice::api {

inline constexpr Token kTurnStart = 256, kTurnEnd = 257, kBegin = 258;

// GPT-2's name of a byte: itself where it can be printed, else one of the code points from 256 on.
inline std::vector<std::string> byte_names() {
  std::vector<std::string> names;
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    unicode::append_utf8(names.emplace_back(), printed ? byte : next++);
  }
  return names;
}

inline json::object added(Token id, std::string_view spelling) {
  return {{"id", id},
          {"content", json::string(spelling)},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", true}};
}

// "<|im_start|>", "<|im_end|>" and "<s>" are control tokens; a text starts with "<s>".
inline tokenizer::Tokenizer make_byte_tokenizer() {
  json::object vocabulary;
  Token id = 0;
  for (const std::string& name : byte_names()) vocabulary[name] = id++;
  const json::object bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const json::object begin{
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", json::array()},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {kBegin}}, {"tokens", {"<s>"}}}}}}};
  const json::object file{
      {"version", "1.0"},
      {"added_tokens",
       {added(kTurnStart, "<|im_start|>"), added(kTurnEnd, "<|im_end|>"), added(kBegin, "<s>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", begin},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::parse_tokenizer_json(json::serialize(file));
  SLUICE_CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

// A chat template.
inline std::string chatml() {
  return "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if style %}[{{ style }}]{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% "
         "endif %}";
}

}  // namespace sluice::api
