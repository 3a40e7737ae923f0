// Reading text of which the end may still be missing: every question has a third answer, that more is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::chat {

bool is_space(char c);
std::string_view trimmed(std::string_view text);  // without spaces and line breaks around it

class TextCursor {
 public:
  // `is_last`: nothing follows the text.
  TextCursor(std::string_view text, bool is_last) : text_(text), is_last_(is_last) {}

  enum class Match : uint8_t { Yes, No, NeedMore };

  // The mark without the spaces around it, behind any spaces; the cursor goes behind it where it is there, and stays
  // otherwise. An empty mark is there.
  Match take(std::string_view mark);
  // Whether the text goes on with exactly this; the cursor stays.
  Match starts_with(std::string_view mark) const;

  void skip_spaces();
  // The next character behind spaces, which are skipped; nothing: more is needed, or the text has ended.
  std::optional<char> peek_behind_spaces();

  bool at_end() const { return at_ == text_.size(); }
  bool is_last() const { return is_last_; }
  char current() const { return text_[at_]; }
  void advance(size_t bytes = 1) { at_ += bytes; }
  size_t position() const { return at_; }
  void set_position(size_t at) { at_ = at; }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view from(size_t begin) const { return text_.substr(begin, at_ - begin); }

 private:
  std::string_view text_;
  bool is_last_;
  size_t at_ = 0;
};

// Where the first of several marks begins in a text.
struct MarkSearch {
  std::optional<size_t> which;  // of the marks; nothing: none is there yet
  size_t before = 0;            // bytes that are certain to come before any mark
};
// Marks that begin at the same place: the longest. Any cut of the text gives the same.
MarkSearch find_mark(std::string_view text, std::span<const std::string_view> marks, bool is_last);

// Goes through a JSON value character by character; what is inside is not checked.
class JsonScan {
 public:
  enum class Step : uint8_t {
    Inside,  // the character belongs to the value, which goes on
    Last,    // it is the value's last
    Behind,  // the value ended before it: a number or a word
  };
  Step feed(char c);
  void reset() { *this = {}; }

 private:
  int depth_ = 0;
  bool begun_ = false, in_string_ = false, escaped_ = false;
};

// A JSON text's escapes resolved, of a string with its quotes; the text itself where it is none.
std::string unquote_json(std::string_view text);
// Appends text as the inside of a JSON string. Any cut of the text gives the same.
void append_json_escaped(std::string_view text, std::string& out);
std::string quote_json(std::string_view text);

}  // namespace sluice::chat
