#include "base/keyed_hash.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// CPython's, which is SipHash-1-3 with a key of zeros where PYTHONHASHSEED is 0.
TEST(KeyedHash, IsSipHash13) {
  EXPECT_EQ(keyed_hash("a", {}), 0x407448d2b89b1813U);
  EXPECT_EQ(keyed_hash("abcdefg", {}), 0x6db12aae9070f506U);
  EXPECT_EQ(keyed_hash("abcdefgh", {}), 0x3f7b849c0b8e35eaU);
  EXPECT_EQ(keyed_hash("The quick brown fox", {}), 0x975e410714568333U);
}

TEST(KeyedHash, HasAKeyOfItsOwnInEachProcess) {
  EXPECT_EQ(keyed_hash("a"), keyed_hash("a"));
  EXPECT_NE(keyed_hash("a"), keyed_hash("a", {}));
}

}  // namespace
}  // namespace sluice
