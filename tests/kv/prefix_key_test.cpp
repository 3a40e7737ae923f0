#include "kv/prefix_key.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::kv {
namespace {

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string sha256_of(const std::string& text) {
  return hex(sha256(std::as_bytes(std::span(text))));
}

// The examples of FIPS 180-4, and lengths around the padding's edges.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(300, 'x');
  for (size_t cut = 0; cut <= text.size(); cut += 7) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text).first(cut)));
    hash.update(std::as_bytes(std::span(text).subspan(cut)));
    EXPECT_EQ(hex(hash.finish()), sha256_of(text));
  }
}

TEST(PrefixKey, CoversModelSaltParentAndTokens) {
  const std::vector<Token> a{1, 2, 3}, b{1, 2, 4};
  const PrefixKey root = root_key("model", "salt");
  EXPECT_EQ(child_key(root, a), child_key(root, a));
  EXPECT_NE(child_key(root, a), child_key(root, b));
  EXPECT_NE(child_key(child_key(root, a), a), child_key(root, a));
  EXPECT_NE(root, root_key("model", "other"));
  EXPECT_NE(root, root_key("other", "salt"));
  EXPECT_NE(root_key("ab", "c"), root_key("a", "bc"));
}

}  // namespace
}  // namespace sluice::kv
