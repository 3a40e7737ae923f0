#include "cli/terminal/answer_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/terminal.h"

namespace sluice::cli {

std::string AnswerText::take(std::string_view piece) {
  std::string out;
  const std::string text = escape_controls(piece, "\n\t");
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = std::max<size_t>(1, printable_length(rest));
    put(rest.substr(0, length), out);
    rest.remove_prefix(length);
  }
  return out;
}

void AnswerText::put(std::string_view character, std::string& out) {
  constexpr size_t kTab = 8;
  if (character == "\n") {
    out += '\n';
    column_ = 0;
    word_.clear();
    return;
  }
  const bool is_space = character == " " || character == "\t";
  const size_t columns = character == "\t" ? kTab - column_ % kTab : columns_of(character);
  if (width_ > 0 && column_ + columns > width_) {
    // A space at the end of a line is the line break.
    if (is_space) {
      word_.clear();
      out += '\n';
      column_ = 0;
      return;
    }
    break_line(out);
  }
  out += character;
  column_ += columns;
  if (is_space) {
    word_.clear();
  } else {
    word_ += character;
  }
}

void AnswerText::break_line(std::string& out) {
  const size_t shown = columns_of(word_);
  const bool moves = shown > 0 && shown < column_;  // a word that fills the line is cut where the line ends
  // With the last column written the cursor stands on it, not behind it.
  if (moves) out += fmt::format("\033[{}G\033[K", column_ - shown + 1);
  out += '\n';
  column_ = 0;
  if (moves) {
    out += word_;
    column_ = shown;
  } else {
    word_.clear();
  }
}

}  // namespace sluice::cli
