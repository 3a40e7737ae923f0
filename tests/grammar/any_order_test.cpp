// Objects whose members come in any order: each at most once, and all that are required before the object ends.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

std::shared_ptr<const CompiledGrammar> open_grammar(std::string_view schema,
                                                    const std::vector<std::string>& more = {}) {
  auto grammar = compile(
      {request::JsonSchema{.schema = std::string(schema), .closed_objects = false, .any_order = true}, ""},
      byte_vocabulary(more));
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  return grammar ? *grammar : nullptr;
}

// What may come behind the text: the mask's bit of each token.
class Behind {
 public:
  Behind(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text)
      : matcher_(grammar, std::vector<Token>{kEnd}), mask_(matcher_.mask_words(), -1) {
    for (const char c : text)
      EXPECT_TRUE(matcher_.accept(static_cast<unsigned char>(c)).ok()) << text << " at " << c;
    const Result<bool> filled = matcher_.fill(mask_);
    EXPECT_TRUE(filled.ok());
  }
  bool may(Token token) const {
    const auto index = static_cast<size_t>(token);
    return ((mask_[index / 32] >> (index % 32)) & 1) != 0;
  }

 private:
  Matcher matcher_;
  std::vector<int32_t> mask_;
};

constexpr std::string_view kThree =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},
        "required":["a","c"],"additionalProperties":false})";

TEST(AnyOrder, TakesEveryOrder) {
  const auto grammar = open_grammar(kThree);
  for (const char* text :
       {R"({"a":1,"c":true})", R"({"c":true,"a":1})", R"({"b":"x","c":false,"a":2})",
        R"({"c":false, "b":"x", "a":2})", R"({"a":2,"b":"x","c":false})", R"({ "c" : false , "a" : 2 })"})
    EXPECT_TRUE(takes(grammar, text)) << text;
  for (const char* text : {R"({"a":1})", R"({})", R"({"c":true,"b":"x"})", R"({"a":1,"c":true,"a":2})",
                           R"({"a":1,"c":true,})", R"({"a":1,"c":1})", R"({"a":1,"c":true,"d":1})"})
    EXPECT_FALSE(takes(grammar, text)) << text;
}

TEST(AnyOrder, MasksKnowWhatWasWritten) {
  const auto grammar = open_grammar(kThree);
  EXPECT_FALSE(Behind(grammar, R"({"a":1)").may('}'));
  EXPECT_TRUE(Behind(grammar, R"({"a":1)").may(','));
  EXPECT_FALSE(Behind(grammar, R"({"a":1,")").may('a'));
  EXPECT_TRUE(Behind(grammar, R"({"a":1,")").may('b'));
  EXPECT_TRUE(Behind(grammar, R"({"c":true,"a":1)").may('}'));
  EXPECT_TRUE(Behind(grammar, R"({"c":true,"a":1)").may(','));
  EXPECT_FALSE(Behind(grammar, R"({"c":true,"b":"","a":1)").may(','));
  EXPECT_TRUE(Behind(grammar, R"({"c":true,"b":"","a":1)").may('}'));
}

// Tokens that hold the end of a member and the beginning of others.
TEST(AnyOrder, MasksOfLongTokens) {
  const std::vector<std::string> more{R"(,"a":1)", R"(,"c":true})",   R"(,"c":true,"b)",
                                      "}",         R"({"c":true,"c)", R"({"c":true,"a)"};
  const auto grammar = open_grammar(kThree, more);
  constexpr Token kFirst = kEnd + 1;
  const Behind behind(grammar, R"({"a":1)");
  EXPECT_FALSE(behind.may(kFirst));
  EXPECT_TRUE(behind.may(kFirst + 1));
  EXPECT_TRUE(behind.may(kFirst + 2));
  EXPECT_FALSE(behind.may(kFirst + 3));
  const Behind start(grammar, "");
  EXPECT_FALSE(start.may(kFirst + 4));
  EXPECT_TRUE(start.may(kFirst + 5));
}

TEST(AnyOrder, CountsMembers) {
  const auto grammar = open_grammar(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
          "required":["c"],"minProperties":2,"maxProperties":2,"additionalProperties":{"type":"null"}})");
  for (const char* text :
       {R"({"c":1,"a":2})", R"({"b":1,"c":2})", R"({"x":null,"c":2})", R"({"c":2,"y":null})"})
    EXPECT_TRUE(takes(grammar, text)) << text;
  for (const char* text : {R"({"c":1})", R"({"a":1,"b":2})", R"({"a":1,"c":2,"b":3})",
                           R"({"x":null,"y":null})", R"({"c":1,"x":3})"})
    EXPECT_FALSE(takes(grammar, text)) << text;
  // The last place is the required member's.
  EXPECT_TRUE(Behind(grammar, R"({"a":1,")").may('c'));
  EXPECT_FALSE(Behind(grammar, R"({"a":1,")").may('b'));
  EXPECT_FALSE(Behind(grammar, R"({"a":1,")").may('x'));
}

TEST(AnyOrder, NestedAndRecursive) {
  const auto grammar = open_grammar(
      R"({"type":"object","properties":{"name":{"type":"string"},"next":{"$ref":"#"},
          "all":{"type":"array","items":{"$ref":"#"}}},"required":["name"]})");
  for (const char* text :
       {R"({"next":{"all":[{"name":"x"},{"next":{"name":"y"},"name":"z"}],"name":"a"},"name":"b"})",
        R"({"name":"a","other":[1,{"name":1}],"next":{"name":"b"}})"})
    EXPECT_TRUE(takes(grammar, text)) << text;
  for (const char* text : {R"({"next":{"all":[]},"name":"b"})",
                           R"({"next":{"name":"a","next":{}},"name":"b"})", R"({"other":1,"name":2})"})
    EXPECT_FALSE(takes(grammar, text)) << text;
}

TEST(AnyOrder, RollbackTakesMembersBack) {
  const auto grammar = open_grammar(kThree);
  Matcher matcher(grammar, std::vector<Token>{kEnd});
  const auto write = [&](std::string_view text) {
    for (const char c : text) ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)).ok()) << text;
  };
  write(R"({"c":true,"a":1)");
  Matcher fork = matcher;
  matcher.rollback(5);  // "a":1
  write(R"("b":"x","a":1})");
  EXPECT_TRUE(matcher.ended());
  EXPECT_TRUE(fork.accept('}').ok());
}

TEST(AnyOrder, ManyProperties) {
  std::string properties, text;
  for (int i = 0; i < 150; ++i) {
    const std::string name = "key" + std::to_string(i);
    properties += (i > 0 ? ",\"" : "\"") + name + R"(":{"type":"integer"})";
    text = "\"" + name + "\":" + std::to_string(i) + (text.empty() ? "" : ",") + text;
  }
  const auto grammar = open_grammar(R"({"type":"object","properties":{)" + properties +
                                    R"(},"required":["key3","key140"],"additionalProperties":false})");
  EXPECT_TRUE(takes(grammar, "{" + text + "}"));
  EXPECT_TRUE(takes(grammar, R"({"key140":1,"key3":2})"));
  EXPECT_FALSE(takes(grammar, R"({"key140":1,"key4":2})"));
  EXPECT_FALSE(takes(grammar, "{" + text + R"(,"key7":1})"));
}

}  // namespace
}  // namespace sluice::grammar
