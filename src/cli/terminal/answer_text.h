// An answer on the screen while it comes.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

// Wraps at words: what has been shown of a word that turns out not to fit is taken back and shown on the next line.
// Control characters other than line breaks and tabs are shown escaped.
class AnswerText {
 public:
  explicit AnswerText(size_t width) : width_(width) {}  // columns of the terminal; 0: lines have no end

  // What to write for the next piece of the answer.
  std::string take(std::string_view piece);

 private:
  void put(std::string_view character, std::string& out);
  void break_line(std::string& out);

  size_t width_;
  size_t column_ = 0;  // of the cursor
  std::string word_;   // the characters since the last space of this line
};

}  // namespace sluice::cli
