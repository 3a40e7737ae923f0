// Repetitions of a character with bounds: their masks at every place, and what they cost.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/matcher.h"
#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

struct Bounds {
  int least, most;  // most < 0: none
};

// Whether the text begins one of `<` [^<>]{least,most} `>`, where the others are of one or two bytes.
bool begins(std::string_view text, Bounds bounds) {
  int count = 0;
  bool inside = false, closed = false;  // a character of two bytes; the text
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continues = (byte & 0xC0) == 0x80;
    if (closed || continues != inside) return false;
    inside = false;
    if (i == 0 || byte == '<' || byte == '>') {
      const bool opens = i == 0 && byte == '<';
      closed = i > 0 && byte == '>' && count >= bounds.least;
      if (!opens && !closed) return false;
      continue;
    }
    if (continues) continue;
    if (bounds.most >= 0 && count == bounds.most) return false;
    ++count;
    inside = byte >= 0xC2 && byte <= 0xDF;
  }
  return true;
}

std::vector<std::string> more_tokens() {
  std::vector<std::string> more{"<a", "a>", ">", "é", "éa", "aé>", "\xC3", "\xA9", "\xA9\x61", "a\xC3", ">a"};
  for (int length = 2; length < 24; length += 3) {
    more.push_back(std::string(static_cast<size_t>(length), 'a'));
    more.push_back(std::string(static_cast<size_t>(length), 'b') + ">");
  }
  return more;
}

std::string bounds_text(Bounds bounds) {
  return bounds.most < 0 ? fmt::format("{{{},}}", bounds.least)
                         : fmt::format("{{{},{}}}", bounds.least, bounds.most);
}

// Tokens whose bytes the oracle knows: no lead of three or four bytes.
bool is_known(Token token) {
  return token != kEnd && (token < 0xE0 || token > 255) && token != 0xC0 && token != 0xC1;
}

TEST(CountedCharacters, MasksAreExactAtEveryPlace) {
  const std::vector<std::string> more = more_tokens();
  const auto vocabulary = byte_vocabulary(more);
  std::mt19937 random(7);
  for (const Bounds bounds : {Bounds{0, 9}, {3, 40}, {20, 20}, {12, -1}, {30, 31}, {100, 300}, {0, 1}}) {
    const std::string text = "root ::= \"<\" [^<>]" + bounds_text(bounds) + " \">\"";
    const auto grammar = compile({request::ContextFree{.grammar = text}, ""}, vocabulary);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    for (int round = 0; round < 4; ++round) {
      Matcher matcher(*grammar, std::vector<Token>{kEnd});
      std::vector<int32_t> mask(matcher.mask_words());
      std::string written;
      for (int step = 0; step < 80 && !matcher.ended(); ++step) {
        ASSERT_TRUE(matcher.fill(mask).ok());
        std::vector<Token> possible;
        for (Token token = 0; token < vocabulary->width(); ++token) {
          if (!is_known(token)) continue;
          const auto index = static_cast<size_t>(token);
          const bool allowed = ((mask[index / 32] >> (index % 32)) & 1) != 0;
          const bool fits = begins(written + std::string(vocabulary->text(token)), bounds);
          ASSERT_EQ(allowed, fits) << text << " behind " << written << ": " << vocabulary->text(token);
          // Long tokens are rare among all, and control characters say nothing more.
          if (allowed && (token > kEnd || token == 'a' || round == 0)) possible.push_back(token);
        }
        if (written.ends_with('>')) break;
        ASSERT_FALSE(possible.empty());
        const Token chosen = possible[random() % possible.size()];
        written += vocabulary->text(chosen);
        ASSERT_TRUE(matcher.accept(chosen).ok());
      }
    }
  }
}

size_t bytes_of_strings(int longest) {
  std::string properties;
  for (int i = 0; i < 20; ++i)
    properties +=
        fmt::format(R"({}"p{}":{{"type":"string","maxLength":{}}})", i == 0 ? "" : ",", i, longest + i);
  const std::string schema = R"({"type":"object","properties":{)" + properties + "}}";
  const auto grammar = compile({request::JsonSchema{.schema = schema, .closed_objects = true}, ""});
  EXPECT_TRUE(grammar.ok());
  return grammar.ok() ? (*grammar)->bytes() : 0;
}

TEST(CountedCharacters, ALengthCostsNoStates) {
  EXPECT_LT(bytes_of_strings(5000), bytes_of_strings(20) * 11 / 10);
}

TEST(CountedCharacters, PlacesFarFromTheBoundsShareAMask) {
  const std::string schema = R"({"type":"string","maxLength":3000})";
  const auto grammar = compile({request::JsonSchema{.schema = schema, .closed_objects = true}, ""});
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(*grammar, std::vector<Token>{kEnd});
  std::vector<int32_t> mask(matcher.mask_words());
  const auto write = [&](char c, int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(matcher.fill(mask).ok());
      ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)).ok());
    }
  };
  write('"', 1);
  write('x', 10);
  const size_t before = (*grammar)->bytes();
  write('x', 1000);
  EXPECT_EQ((*grammar)->bytes(), before);
  write('x', 1990);
  ASSERT_TRUE(matcher.fill(mask).ok());
  EXPECT_EQ(mask['x' / 32] >> ('x' % 32) & 1, 0);
  write('"', 1);
  EXPECT_TRUE(matcher.ended());
}

}  // namespace
}  // namespace sluice::grammar
