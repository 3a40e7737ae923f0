#include "cli/terminal/answer_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::cli {
namespace {

// The lines that a terminal shows for the pieces: letters, line ends, and the sequences that take back a word.
std::vector<std::string> screen(size_t width, const std::vector<std::string>& pieces) {
  AnswerText text(width);
  std::string written;
  for (const std::string& piece : pieces) written += text.take(piece);
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] == '\033') {
      const size_t end = written.find_first_of("GK", i);
      if (written[end] == 'G') column = std::stoul(written.substr(i + 2)) - 1;
      if (written[end] == 'K') lines.back().resize(column);
      i = end;
    } else if (written[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else {
      lines.back().resize(column);
      lines.back() += written[i];
      ++column;
    }
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(AnswerText, WrapsAtWords) {
  EXPECT_EQ(screen(10, {"one two three four"}), (Lines{"one two ", "three four"}));
  EXPECT_EQ(screen(10, {"one", " two th", "r", "ee", " four"}), (Lines{"one two ", "three four"}));
  EXPECT_EQ(screen(10, {"0123456789 next"}), (Lines{"0123456789", "next"})) << "the space is the line break";
  EXPECT_EQ(screen(10, {"one\ntwo"}), (Lines{"one", "two"}));
  EXPECT_EQ(screen(0, {"one two three four"}), Lines{"one two three four"});
}

TEST(AnswerText, CutsWordsThatAreLongerThanALine) {
  EXPECT_EQ(screen(4, {"abcdefghij"}), (Lines{"abcd", "efgh", "ij"}));
  EXPECT_EQ(screen(4, {"a bcdefgh"}), (Lines{"a ", "bcde", "fgh"}));
}

TEST(AnswerText, ShowsControlCharacters) {
  EXPECT_EQ(screen(0, {"a\x1b", "[2Jb"}), Lines{"a\\x1b[2Jb"});
}

}  // namespace
}  // namespace sluice::cli
