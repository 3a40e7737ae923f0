// Grammars over a vocabulary of single bytes, and texts pushed through them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"

namespace sluice::grammar {

inline constexpr Token kEnd = 256;

// Every byte is a token; token 256 ends an answer. `more` follow.
inline std::shared_ptr<const Vocabulary> byte_vocabulary(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  tokens.insert(tokens.end(), more.begin(), more.end());
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<Token>{kEnd});
}

inline Result<std::shared_ptr<const CompiledGrammar>> compile(
    request::Constraint constraint, std::shared_ptr<const Vocabulary> vocabulary = nullptr) {
  Result<PreparedConstraint> prepared = prepare(constraint);
  if (!prepared) return prepared.error();
  return CompiledGrammar::compile(std::move(*prepared),
                                  vocabulary != nullptr ? vocabulary : byte_vocabulary());
}

// Whether the text is a whole answer: each byte allowed by the mask before it, the end too, and the check passed.
inline bool takes(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  const std::vector<Token> ends{kEnd};
  Matcher matcher(grammar, ends);
  std::vector<int32_t> mask(matcher.mask_words());
  std::vector<Token> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  tokens.push_back(kEnd);
  for (const Token token : tokens) {
    if (matcher.ended()) return token == kEnd;
    const Result<bool> filled = matcher.fill(mask);
    if (!filled) return false;
    const auto index = static_cast<size_t>(token);
    const bool allowed = !*filled || ((mask[index / 32] >> (index % 32)) & 1) != 0;
    if (!allowed || !matcher.accept(token)) return false;
  }
  return matcher.ended();
}

}  // namespace sluice::grammar
