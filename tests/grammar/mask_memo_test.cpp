#include "grammar/mask_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

using request::Constraint;
using request::ContextFree;
using request::JsonSchema;

const std::vector<Token> kWalkEnds{kEnd};
// Tokens that end one part of a text and begin the next, or several.
const std::vector<std::string> kLongTokens{
    "\",", "\",\"", "\"]",  "\"}", "\"]}", "1,", "1]", "1,1,1", ",\"a\":", "}]",
    "],[", "ab",    "aaaa", "\":", "é",    "[[", "]]", "},{",   ",,",      "12]}"};

bool has_bit(const std::vector<int32_t>& mask, Token token) {
  const auto index = static_cast<size_t>(token);
  return ((mask[index / 32] >> (index % 32)) & 1) != 0;
}

// A walk of random tokens, on which each mask is held to what the matcher takes.
void walk(const std::shared_ptr<const CompiledGrammar>& grammar, unsigned seed) {
  std::mt19937 random(seed);
  Matcher matcher(grammar, kWalkEnds);
  std::vector<int32_t> mask(matcher.mask_words());
  std::string text;
  for (int step = 0; step < 60 && !matcher.ended(); ++step) {
    const Result<bool> filled = matcher.fill(mask);
    ASSERT_TRUE(filled.ok());
    std::vector<Token> taken;
    for (Token token = 0; token < grammar->vocabulary().width(); ++token) {
      Matcher next = matcher;
      const bool takes = next.accept(token).ok();
      ASSERT_EQ(takes, !*filled || has_bit(mask, token))
          << text << " and then " << grammar->vocabulary().text(token);
      if (takes) taken.push_back(token);
    }
    ASSERT_FALSE(taken.empty()) << text;
    // Long tokens, which are what differs from place to place, come often.
    const bool is_long = random() % 2 == 0 && taken.back() > kEnd;
    const size_t first =
        is_long ? static_cast<size_t>(std::upper_bound(taken.begin(), taken.end(), kEnd) - taken.begin()) : 0;
    const Token token = taken[first + random() % (taken.size() - first)];
    ASSERT_TRUE(matcher.accept(token).ok());
    text += grammar->vocabulary().text(token);
  }
}

TEST(MaskMemo, MasksOfStatesThatComeAgainAreRight) {
  const std::vector<Constraint> constraints{
      {JsonSchema{.schema = R"({"type":"array","items":{"type":"integer"},"minItems":12,"maxItems":14})",
                  .compact = true},
       ""},
      {JsonSchema{
           .schema = R"({"type":"array","items":{"type":"string","maxLength":9},"minItems":3,"maxItems":20})",
           .compact = true},
       ""},
      {JsonSchema{
           .schema =
               R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":["integer","string"]}}}})",
           .any_order = true,
           .compact = true},
       ""},
      {JsonSchema{
           .schema =
               R"({"$defs":{"n":{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/$defs/n"}},"b":{"type":"null"}}}},"$ref":"#/$defs/n"})",
           .compact = true},
       ""},
      {JsonSchema{
           .schema =
               R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0,"maximum":12}},"minItems":2})",
           .compact = true},
       ""},
      {ContextFree{.grammar = "root ::= (\"a\" | \"1,\"){20,30} \"]\""}, ""},
      {ContextFree{.grammar = "root ::= item{9,11}\nitem ::= \"a\" | \"\" | \"[\" item \"]\""}, ""},
  };
  const auto vocabulary = byte_vocabulary(kLongTokens);
  for (const Constraint& constraint : constraints) {
    const auto grammar = compile(constraint, vocabulary);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    for (unsigned seed = 0; seed < 6; ++seed) walk(*grammar, seed);
    EXPECT_GT((*grammar)->masks().bytes(), 0U);
    EXPECT_GE((*grammar)->bytes(), (*grammar)->masks().bytes());
  }
}

void push_text(Matcher& matcher, std::string_view text) {
  std::vector<int32_t> mask(matcher.mask_words());
  for (const char c : text) {
    ASSERT_TRUE(matcher.fill(mask).ok());
    ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)).ok()) << text;
  }
}

TEST(MaskMemo, ALongAnswerComesToTheSameStates) {
  for (const char* schema : {R"({"type":"array","items":{"type":"string"},"minItems":2000})",
                             R"({"type":"array","items":{"type":"string","minLength":3000}})"}) {
    const auto grammar = compile({JsonSchema{.schema = schema, .compact = true}, ""}, byte_vocabulary());
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    const bool is_long = std::string_view(schema).find("minLength") != std::string_view::npos;
    Matcher matcher(*grammar, kWalkEnds);
    push_text(matcher, "[\"a");
    const auto go_on = [&] {
      for (int i = 0; i < 40; ++i) push_text(matcher, is_long ? "some" : "\",\"some");
    };
    go_on();
    const size_t met = (*grammar)->masks().bytes();
    EXPECT_GT(met, 0U);
    go_on();
    EXPECT_EQ((*grammar)->masks().bytes(), met) << schema;
  }
}

TEST(MaskMemo, EndTokensAreTheMatchersOwn) {
  const auto vocabulary = byte_vocabulary();
  const auto grammar = compile({ContextFree{.grammar = "root ::= [a-z]*"}, ""}, vocabulary);
  ASSERT_TRUE(grammar.ok());
  const std::vector<Token> others{'!'};
  const Matcher first(*grammar, kWalkEnds), second(*grammar, others);
  std::vector<int32_t> mask(first.mask_words());
  ASSERT_TRUE(first.fill(mask).ok());
  EXPECT_TRUE(has_bit(mask, kEnd) && !has_bit(mask, '!'));
  ASSERT_TRUE(second.fill(mask).ok());
  EXPECT_TRUE(!has_bit(mask, kEnd) && has_bit(mask, '!'));
}

TEST(MaskMemo, IsBounded) {
  MaskMemo memo;
  const std::vector<int32_t> mask(5000, 7);
  std::vector<int32_t> found(mask.size());
  for (int32_t i = 0; i < 500; ++i) {
    memo.keep({i}, mask, true);
    EXPECT_EQ(memo.find({i}, found), std::optional(true));
    EXPECT_EQ(found, mask);
    EXPECT_LE(memo.bytes(), MaskMemo::kBytes);
  }
  EXPECT_EQ(memo.find({0}, found), std::nullopt);
  memo.keep({1000}, std::vector<int32_t>(MaskMemo::kBytes), true);
  EXPECT_EQ(memo.find({499}, found), std::optional(true));
}

}  // namespace
}  // namespace sluice::grammar
