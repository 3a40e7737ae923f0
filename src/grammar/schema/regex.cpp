#include "grammar/schema/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

namespace sluice::grammar {

namespace {

constexpr size_t kLongestPattern = size_t{16} << 10;
// White space and line ends of ECMA-262.
constexpr std::string_view kSpaceMembers =
    R"(\x09-\x0D\x20\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF})";

Error bad_pattern(std::string_view source, std::string_view why) {
  return {ErrorCode::InvalidArgument, fmt::format("the pattern \"{}\" {}", source, why)};
}

// Rewrites ECMA-262 in the syntax of unicode::Pattern, where classes hold all of Unicode and $ also matches before a
// last line end.
class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source) {}

  Result<std::string> run() {
    for (; at_ < source_.size(); ++at_) {
      if (source_[at_] == '\\') {
        if (Status done = escape(); !done) return done.error();
      } else {
        plain(source_[at_]);
      }
    }
    if (in_class_) return bad_pattern(source_, "has a [ without its ]");
    return std::move(out_);
  }

 private:
  void plain(char c) {
    if (in_class_) {
      if (c == ']') in_class_ = false;
      if (c == '[') out_ += '\\';
      out_ += c;
      return;
    }
    if (c == '$') {
      out_ += R"(\z)";
      return;
    }
    out_ += c;
    if (c != '[') return;
    in_class_ = true;
    if (at_ + 1 < source_.size() && source_[at_ + 1] == '^') {
      out_ += '^';
      ++at_;
    }
    // [] and [^] are a class of nothing and of everything.
    if (at_ + 1 < source_.size() && source_[at_ + 1] == ']') {
      const bool all = out_.back() == '^';
      out_.resize(out_.size() - (all ? 2 : 1));
      out_ += all ? R"((?:.|\n))" : "(?!)";
      in_class_ = false;
      ++at_;
    }
  }

  Status escape() {
    if (at_ + 1 == source_.size()) return bad_pattern(source_, "ends with a backslash");
    const char letter = source_[++at_];
    std::string_view members;
    switch (letter) {
      case 'd':
      case 'D':
        members = "0-9";
        break;
      case 'w':
      case 'W':
        members = "A-Za-z0-9_";
        break;
      case 's':
      case 'S':
        members = kSpaceMembers;
        break;
      case 'u':
        return code_point();
      case 'c':
        return control();
      case 'b':
      case 'B':
        return border(letter);
      case '/':
      case '-':
        out_ += in_class_ && letter == '-' ? "\\-" : std::string(1, letter);
        return {};
      default:
        out_ += '\\';
        out_ += letter;
        return {};
    }
    const bool negated = std::isupper(static_cast<unsigned char>(letter)) != 0;
    if (in_class_ && negated)
      return bad_pattern(source_, fmt::format("has \\{} in brackets, which is not supported", letter));
    out_ += in_class_ ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
    return {};
  }

  Status border(char letter) {
    if (in_class_) {
      out_ += R"(\x08)";
      return {};
    }
    constexpr std::string_view kWord = "[A-Za-z0-9_]";
    out_ += letter == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", kWord)
                          : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", kWord);
    return {};
  }

  Status control() {
    if (at_ + 1 == source_.size() || std::isalpha(static_cast<unsigned char>(source_[at_ + 1])) == 0)
      return bad_pattern(source_, "has \\c without a letter");
    out_ += fmt::format("\\x{:02X}", source_[++at_] & 31);
    return {};
  }

  // \uHHHH, a pair of surrogates, or \u{H...}.
  Status code_point() {
    uint32_t code = 0;
    if (at_ + 1 < source_.size() && source_[at_ + 1] == '{') {
      const size_t end = source_.find('}', at_);
      if (end == std::string_view::npos || !hex(source_.substr(at_ + 2, end - at_ - 2), code))
        return bad_pattern(source_, "has a \\u{...} that is no number");
      at_ = end;
    } else {
      if (!hex(source_.substr(at_ + 1, 4), code) || at_ + 4 >= source_.size())
        return bad_pattern(source_, "has a \\u without four digits");
      at_ += 4;
      uint32_t low = 0;
      const bool pair = code >= 0xD800 && code < 0xDC00 && source_.substr(at_ + 1, 2) == "\\u" &&
                        hex(source_.substr(at_ + 3, 4), low) && low >= 0xDC00 && low < 0xE000;
      if (pair) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at_ += 6;
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return bad_pattern(source_, fmt::format("has U+{:X}, which is no character", code));
    out_ += fmt::format("\\x{{{:X}}}", code);
    return {};
  }

  static bool hex(std::string_view digits, uint32_t& value) {
    if (digits.empty() || digits.size() > 6) return false;
    value = 0;
    for (const char c : digits) {
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return true;
  }

  std::string_view source_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<Regex> Regex::compile(std::string_view source) {
  if (source.size() > kLongestPattern)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("a pattern of {} bytes; the limit is {}", source.size(), kLongestPattern)};
  Result<std::string> translated = Translator(source).run();
  if (!translated) return translated.error();
  // Every pattern is taken by PCRE2: the faster matcher of pre-tokenizers knows no captures that are not used.
  Result<unicode::Pattern> pattern = unicode::Pattern::compile(*translated);
  if (!pattern) return bad_pattern(source, "is not supported: " + pattern.error().message);
  return Regex(std::move(*pattern));
}

Result<bool> Regex::search(std::string_view text) const {
  unicode::Pattern::Finder finder(pattern_);
  finder.reset(text);
  Result<std::optional<unicode::PatternMatch>> found = finder.next();
  if (!found) return found.error();
  return found->has_value();
}

namespace {

// The alternatives of a pattern that stand in no group.
std::vector<std::string_view> alternatives_of(std::string_view pattern) {
  std::vector<std::string_view> found;
  int groups = 0;
  bool in_class = false;
  size_t begin = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\')
      ++i;
    else if (in_class)
      in_class = c != ']';
    else if (c == '[')
      in_class = true;
    else if (c == '(' || c == ')')
      groups += c == '(' ? 1 : -1;
    else if (c == '|' && groups == 0) {
      found.push_back(pattern.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  found.push_back(pattern.substr(begin));
  return found;
}

bool ends_with_anchor(std::string_view text) {
  if (text.empty() || text.back() != '$') return false;
  size_t backslashes = 0;
  while (backslashes + 1 < text.size() && text[text.size() - 2 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 0;
}

// Anchors, borders, look-arounds, references and U+0000, which the grammar's matcher does not keep.
bool has_assertions(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return true;
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;
      const char letter = i < text.size() ? text[i] : ' ';
      if (!in_class && (letter == 'b' || letter == 'B' || letter == 'k' || (letter >= '1' && letter <= '9')))
        return true;
      const bool is_nul = letter == '0' || text.substr(i, 3) == "x00" || text.substr(i, 5) == "u0000";
      if (letter == 'p' || letter == 'P' || is_nul) return true;  // classes of Unicode
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^' || c == '$') {
      return true;
    } else if (c == '(' && text.substr(i, 2) == "(?" && text.substr(i, 3) != "(?:") {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string as_whole_match(std::string_view pattern) {
  std::string out;
  const std::vector<std::string_view> alternatives = alternatives_of(pattern);
  for (size_t i = 0; i < alternatives.size(); ++i) {
    std::string_view one = alternatives[i];
    const bool begins = !one.empty() && one.front() == '^', ends = ends_with_anchor(one);
    if (begins) one.remove_prefix(1);
    if (ends) one.remove_suffix(1);
    if (has_assertions(one)) return {};
    if (i > 0) out += '|';
    out += fmt::format("{}{}{}", begins ? "" : ".*", one, ends ? "" : ".*");
  }
  return alternatives.size() == 1 ? "^" + out + "$" : "^(" + out + ")$";
}

std::string with_length_bounds(std::string_view pattern, int64_t least, int64_t most) {
  if (pattern.size() < 4 || pattern.front() != '^' || pattern.back() != '$') return {};
  if (pattern.find('\0') != std::string_view::npos) return {};
  const char quantifier = pattern[pattern.size() - 2];
  if (quantifier != '*' && quantifier != '+') return {};
  const std::string_view atom = pattern.substr(1, pattern.size() - 3);
  const bool is_escape =
      atom.size() == 2 && atom[0] == '\\' && std::isalpha(static_cast<unsigned char>(atom[1])) != 0;
  const bool is_class = atom.size() > 2 && atom.front() == '[' && atom.back() == ']' &&
                        atom[atom.size() - 2] != '\\' && std::count(atom.begin(), atom.end(), '[') == 1 &&
                        std::count(atom.begin(), atom.end(), ']') == 1;
  if (!is_escape && !is_class && atom != ".") return {};
  least = std::max<int64_t>(least, quantifier == '+' ? 1 : 0);
  if (most == std::numeric_limits<int64_t>::max()) return fmt::format("^{}{{{},}}$", atom, least);
  return least > most ? std::string() : fmt::format("^{}{{{},{}}}$", atom, least, most);
}

}  // namespace sluice::grammar
