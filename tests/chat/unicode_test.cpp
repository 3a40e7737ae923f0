// Case and classes of every code point; the sums and counts are Python 3.11's, whose str methods templates follow.
#include "unicode/unicode.h"

#include <gtest/gtest.h>

#include "jinja/values/unicode.h"

namespace sluice::chat {
namespace {

// A number that depends on every part of every answer.
template <class Map>
uint64_t digest(const Map& map) {
  uint64_t sum = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    for (const char32_t part : map(code)) sum = sum * 31 + part;
  }
  return sum;
}

template <class Test>
int count(const Test& test) {
  int found = 0;
  for (char32_t code = 0; code < 0x110000; ++code) found += test(code);
  return found;
}

TEST(Unicode, CaseIsPythons) {
  EXPECT_EQ(unicode::to_full_upper(U'\u00DF'), U"SS");
  EXPECT_EQ(unicode::to_full_upper(U'\uFB03'), U"FFI");
  EXPECT_EQ(unicode::to_full_lower(U'\u0130'), U"i\u0307");
  EXPECT_EQ(digest(unicode::to_full_upper), 6180953364115783635u);
  EXPECT_EQ(digest(unicode::to_full_lower), 2163500660183212571u);
}

TEST(Unicode, ClassesArePythons) {
  EXPECT_EQ(count(jinja::is_alpha), 131756);
  EXPECT_EQ(count(jinja::is_decimal), 660);
  EXPECT_EQ(count(jinja::is_printable), 144516);
  EXPECT_EQ(count(jinja::is_space), 29);
}

}  // namespace
}  // namespace sluice::chat
