// Template source to tokens, with white space control settled: data tokens hold exactly what is printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

enum class TokenKind : uint8_t {
  Data,
  PrintBegin,
  PrintEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,  // text is the decoded value
  Integer,
  Float,
  Operator,
  End,
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;
  int line = 1;

  bool is(TokenKind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool is_operator(std::string_view wanted) const { return is(TokenKind::Operator, wanted); }
  bool is_name(std::string_view wanted) const { return is(TokenKind::Name, wanted); }
};

// trim_blocks and lstrip_blocks are on and one newline at the end goes, as chat templates expect.
// Throws TemplateError; `line` is where the scan stands.
std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace sluice::jinja
