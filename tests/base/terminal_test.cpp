#include "base/system/terminal.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Terminal, ControlCharactersAreShown) {
  EXPECT_EQ(escape_controls("plain é 漢"), "plain é 漢");
  EXPECT_EQ(escape_controls("a\x1b[2J\x07"), "a\\x1b[2J\\x07");
  EXPECT_EQ(escape_controls("a\nb\tc\r"), "a\\x0ab\\x09c\\x0d");
  EXPECT_EQ(escape_controls("a\nb\tc\r", "\n\t"), "a\nb\tc\\x0d");
  EXPECT_EQ(escape_controls("\xc2\x9b"
                            "31m"),
            "\\xc2\\x9b31m")
      << "the eight-bit form of ESC [";
  EXPECT_EQ(escape_controls("\x9b"
                            "31m\x7f"),
            "\\x9b31m\\x7f");
  EXPECT_EQ(escape_controls("\xe2\x82"), "\\xe2\\x82") << "half a character";
}

TEST(Terminal, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(columns_of("abc"), 3u);
  EXPECT_EQ(columns_of("é"), 1u);
  EXPECT_EQ(columns_of("漢字"), 4u);
  EXPECT_EQ(columns_of("e\u0301"), 1u);
}

}  // namespace
}  // namespace sluice
