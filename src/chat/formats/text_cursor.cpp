#include "chat/formats/text_cursor.h"

#include <fmt/format.h>

#include "base/json.h"

namespace sluice::chat {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

TextCursor::Match TextCursor::starts_with(std::string_view mark) const {
  const std::string_view here = rest();
  if (here.starts_with(mark)) return Match::Yes;
  const bool may_become = !is_last_ && here.size() < mark.size() && mark.starts_with(here);
  return may_become ? Match::NeedMore : Match::No;
}

TextCursor::Match TextCursor::take(std::string_view mark) {
  const std::string_view bare = trimmed(mark);
  if (bare.empty()) return Match::Yes;
  const size_t begin = at_;
  skip_spaces();
  const Match match = starts_with(bare);
  if (match == Match::Yes) {
    advance(bare.size());
  } else {
    at_ = begin;
  }
  return match;
}

void TextCursor::skip_spaces() {
  while (!at_end() && is_space(current())) advance();
}

std::optional<char> TextCursor::peek_behind_spaces() {
  skip_spaces();
  if (at_end()) return std::nullopt;
  return current();
}

MarkSearch find_mark(std::string_view text, std::span<const std::string_view> marks, bool is_last) {
  for (size_t at = 0; at < text.size(); ++at) {
    TextCursor here(text.substr(at), is_last);
    std::optional<size_t> found;
    for (size_t i = 0; i < marks.size(); ++i) {
      if (marks[i].empty() || marks[i].front() != text[at]) continue;
      const TextCursor::Match match = here.starts_with(marks[i]);
      const bool is_longer = !found || marks[i].size() > marks[*found].size();
      if (match == TextCursor::Match::NeedMore && is_longer) return {.which = std::nullopt, .before = at};
      if (match == TextCursor::Match::Yes && is_longer) found = i;
    }
    if (found) return {.which = found, .before = at};
  }
  return {.which = std::nullopt, .before = text.size()};
}

JsonScan::Step JsonScan::feed(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return Step::Last;
    }
    return Step::Inside;
  }
  const bool is_first = !begun_;
  begun_ = true;
  switch (c) {
    case '"':
      if (depth_ == 0 && !is_first) return Step::Behind;
      in_string_ = true;
      return Step::Inside;
    case '{':
    case '[':
      if (depth_ == 0 && !is_first) return Step::Behind;
      ++depth_;
      return Step::Inside;
    case '}':
    case ']':
      if (depth_ == 0) return Step::Behind;
      return --depth_ == 0 ? Step::Last : Step::Inside;
    default:
      break;
  }
  if (depth_ == 0 && (c == ',' || c == ':' || c == '<' || is_space(c))) return Step::Behind;
  return Step::Inside;
}

std::string unquote_json(std::string_view text) {
  Result<json::value> parsed = parse_json(text, "string");
  if (parsed && parsed->is_string()) return std::string(parsed->get_string());
  return std::string(text);
}

void append_json_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(text, out);
  return out + '"';
}

}  // namespace sluice::chat
