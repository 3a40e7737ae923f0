#include "jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jinja/limits.h"
#include "jinja/syntax/string_literal.h"
#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

enum class Sign : uint8_t { None, Minus, Plus };

class Lexer {
 public:
  Lexer(std::string source, int& line) : source_(std::move(source)), line_(line) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) scan_data();
    push(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(size_t count) {
    if (count == 0) return;
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(count), '\n'));
    position_ += count;
    line_starting_ = source_[position_ - 1] == '\n';
  }

  void skip_space() {
    const ByteRange left = strip_space(source_, {position_, source_.size()}, {true, false});
    advance(left.begin - position_);
  }

  // Position of the next "{{", "{%" or "{#" from `from` on, or the end.
  size_t find_opening(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  static Sign sign_of(char c) { return c == '-' ? Sign::Minus : c == '+' ? Sign::Plus : Sign::None; }
  Sign sign_at(size_t position) const {
    return position < source_.size() ? sign_of(source_[position]) : Sign::None;
  }

  // Data before an opening: "-" takes all white space, and a block that starts its line takes the
  // indentation.
  std::string_view trim_before(std::string_view data, Sign sign, bool is_block) const {
    if (sign == Sign::Minus) {
      return data.substr(0, strip_space(data, {0, data.size()}, {false, true}).end);
    }
    if (sign == Sign::Plus || !is_block) return data;
    const size_t line_begin = data.rfind('\n') + 1;  // npos + 1 is 0
    if (line_begin == 0 && !line_starting_) return data;
    const ByteRange indent = strip_space(data, {line_begin, data.size()}, {true, false});
    return indent.begin == data.size() ? data.substr(0, line_begin) : data;
  }

  void scan_data() {
    const size_t opening = find_opening(position_);
    std::string_view data = std::string_view(source_).substr(position_, opening - position_);
    if (opening == source_.size()) {
      push_data(data);
      advance(data.size());
      return;
    }
    const char kind = source_[opening + 1];
    const Sign sign = sign_at(opening + 2);
    const std::string trimmed(trim_before(data, sign, kind != '{'));
    push_data(trimmed);
    advance(opening - position_);
    if (kind == '%' && scan_raw()) return;
    advance(sign == Sign::None ? 2 : 3);
    if (kind == '#') {
      scan_comment();
    } else {
      scan_code(kind == '%');
    }
  }

  void push_data(std::string_view data) {
    if (!data.empty()) push(TokenKind::Data, std::string(data));
  }

  void scan_comment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) raise("a comment is not closed");
    const Sign sign = end > position_ ? sign_of(source_[end - 1]) : Sign::None;
    advance(end + 2 - position_);
    finish_block(sign);
  }

  // After "%}" or "#}": "-" takes all white space, nothing takes one newline, "+" takes nothing.
  void finish_block(Sign sign) {
    if (sign == Sign::Minus) {
      skip_space();
    } else if (sign == Sign::None && at("\n")) {
      advance(1);
    }
  }

  // Length of `{%- name -%}` at `from` where it stands there with this name, else 0. `closing` is the sign
  // before "%}".
  size_t match_tag(size_t from, std::string_view name, Sign& closing) const {
    size_t i = from + 2;
    if (sign_at(i) != Sign::None) ++i;
    i = strip_space(source_, {i, source_.size()}, {true, false}).begin;
    if (source_.compare(i, name.size(), name) != 0) return 0;
    i = strip_space(source_, {i + name.size(), source_.size()}, {true, false}).begin;
    closing = sign_at(i);
    if (closing != Sign::None) ++i;
    return source_.compare(i, 2, "%}") == 0 ? i + 2 - from : 0;
  }

  bool scan_raw() {
    Sign closing = Sign::None;
    const size_t length = match_tag(position_, "raw", closing);
    if (length == 0 || closing == Sign::Plus) return false;
    advance(length);
    if (closing == Sign::Minus) skip_space();
    for (size_t end = source_.find("{%", position_); end != std::string::npos;
         end = source_.find("{%", end + 1)) {
      const size_t end_length = match_tag(end, "endraw", closing);
      if (end_length == 0) continue;
      const std::string_view data = std::string_view(source_).substr(position_, end - position_);
      push_data(trim_before(data, sign_at(end + 2), true));
      advance(end + end_length - position_);
      finish_block(closing);
      return true;
    }
    raise("a raw block is not closed");
  }

  // Length of the closing at this place, or 0; brackets left open hide it.
  size_t match_closing(bool is_block, Sign& sign) const {
    if (!open_.empty()) return 0;
    const std::string_view mark = is_block ? "%}" : "}}";
    sign = Sign::None;
    if (at(mark)) return 2;
    sign = sign_at(position_);
    const bool signed_closing = sign == Sign::Minus || (sign == Sign::Plus && is_block);
    return signed_closing && rest().substr(1).starts_with(mark) ? 3 : 0;
  }

  void scan_code(bool is_block) {
    push(is_block ? TokenKind::BlockBegin : TokenKind::PrintBegin, "");
    while (true) {
      skip_space();
      if (position_ >= source_.size()) raise(is_block ? "a '{%' is not closed" : "a '{{' is not closed");
      Sign sign = Sign::None;
      const size_t length = match_closing(is_block, sign);
      if (length > 0) {
        push(is_block ? TokenKind::BlockEnd : TokenKind::PrintEnd, "");
        advance(length);
        if (is_block) {
          finish_block(sign);
        } else if (sign == Sign::Minus) {
          skip_space();
        }
        return;
      }
      scan_token();
    }
  }

  void scan_token() {
    const char c = source_[position_];
    if (is_name_start(c)) return scan_name();
    if (is_digit(c)) return scan_number();
    if (c == '\'' || c == '"') return scan_string(c);
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      balance(op);
      push(TokenKind::Operator, std::string(op));
      advance(op.size());
      return;
    }
    raise(fmt::format("unexpected character '{}'", encode(decode_at(source_, position_).value)));
  }

  void balance(std::string_view op) {
    constexpr std::string_view opening = "([{";
    constexpr std::string_view closing = ")]}";
    if (opening.find(op) != std::string_view::npos) {
      open_.push_back(closing[opening.find(op)]);
    } else if (closing.find(op) != std::string_view::npos) {
      if (open_.empty() || open_.back() != op[0]) raise(fmt::format("unexpected '{}'", op));
      open_.pop_back();
    }
  }

  void scan_name() {
    size_t end = position_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    push(TokenKind::Name, source_.substr(position_, end - position_));
    advance(end - position_);
  }

  size_t digits_end(size_t from) const {
    size_t end = from;
    while (end < source_.size() &&
           (is_digit(source_[end]) ||
            (source_[end] == '_' && end > from && end + 1 < source_.size() && is_digit(source_[end + 1])))) {
      ++end;
    }
    return end;
  }

  void scan_number() {
    if (scan_prefixed_integer()) return;
    size_t end = digits_end(position_);
    TokenKind kind = TokenKind::Integer;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';  // the 1 of list.1.0 is no float
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits_end(end + 1);
      kind = TokenKind::Float;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t digits = end + 1 + (sign_at(end + 1) == Sign::None ? 0 : 1);
      if (digits_end(digits) > digits) {
        end = digits_end(digits);
        kind = TokenKind::Float;
      }
    }
    push_number(kind, end);
  }

  bool scan_prefixed_integer() {
    if (source_[position_] != '0' || position_ + 2 >= source_.size()) return false;
    constexpr std::string_view prefixes = "xXoObB";
    if (prefixes.find(source_[position_ + 1]) == std::string_view::npos) return false;
    size_t end = position_ + 2;
    while (end < source_.size() && (is_digit(source_[end]) || is_name_start(source_[end]))) ++end;
    push_number(TokenKind::Integer, end);
    return true;
  }

  void push_number(TokenKind kind, size_t end) {
    std::string digits = source_.substr(position_, end - position_);
    std::erase(digits, '_');
    push(kind, std::move(digits));
    advance(end - position_);
  }

  void scan_string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) raise("a string is not closed");
    push(TokenKind::String,
         decode_string_literal(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    advance(end + 1 - position_);
  }

  std::string source_;
  size_t position_ = 0;
  int& line_;
  bool line_starting_ = true;
  std::string open_;  // closing brackets still to come
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, int& line) {
  line = 1;
  return Lexer(normalize_newlines(source), line).run();
}

}  // namespace sluice::jinja
