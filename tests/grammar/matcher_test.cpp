#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/grammar/support.h"

namespace sluice::grammar {
namespace {

using request::Choice;
using request::Constraint;
using request::ContextFree;
using request::JsonObject;
using request::JsonSchema;
using request::Pattern;
using request::StructuralTag;

const std::vector<Token> kEnds{kEnd};

std::shared_ptr<const CompiledGrammar> made(Constraint constraint,
                                            std::shared_ptr<const Vocabulary> vocabulary = nullptr) {
  const auto grammar = compile(std::move(constraint), std::move(vocabulary));
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message);
  return grammar.ok() ? *grammar : nullptr;
}

void push(Matcher& matcher, std::string_view text) {
  for (const char c : text) ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c)).ok()) << text;
}

std::string allowed(Matcher& matcher) {
  std::vector<int32_t> mask(matcher.mask_words());
  const Result<bool> filled = matcher.fill(mask);
  EXPECT_TRUE(filled.ok());
  std::string found;
  for (size_t i = 0; i < 257; ++i) {
    if (((mask[i / 32] >> (i % 32)) & 1) != 0)
      found += i == 256 ? std::string("END") : std::string(1, static_cast<char>(i));
  }
  return found;
}

TEST(Matcher, EveryKindOfConstraint) {
  const auto object = made({JsonObject{}, ""});
  EXPECT_TRUE(takes(object, R"({"a":[1,null]})"));
  EXPECT_FALSE(takes(object, "[1]"));
  const auto pattern = made({Pattern{"[a-c]+x?"}, ""});
  EXPECT_TRUE(takes(pattern, "abcx"));
  EXPECT_FALSE(takes(pattern, "abcxx"));
  const auto choice = made({Choice{{"yes", "no", "a \"quoted\"\n\\ one", "é"}}, ""});
  for (const char* text : {"yes", "no", "a \"quoted\"\n\\ one", "é"})
    EXPECT_TRUE(takes(choice, text)) << text;
  EXPECT_FALSE(takes(choice, "yesno"));
  const auto gbnf =
      made({ContextFree{.grammar = "# moves\nroot ::= move (\" \" move){0,2}\nmove ::= [a-h] [1-8]\n"}, ""});
  EXPECT_TRUE(takes(gbnf, "e2 e4"));
  EXPECT_FALSE(takes(gbnf, "e2 e4 e5 e6"));
  const auto lark = made(
      {ContextFree{.syntax = ContextFree::Syntax::Lark, .grammar = "start: \"a\" NUMBER\nNUMBER: /[0-9]+/\n"},
       ""});
  EXPECT_TRUE(takes(lark, "a42"));
  EXPECT_FALSE(takes(lark, "a"));
}

TEST(Matcher, OrderAndBlanksOfJson) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]})";
  const auto fixed = made({JsonSchema{.schema = schema}, ""});
  EXPECT_TRUE(takes(fixed, R"({"a": 1, "b":2})"));
  EXPECT_FALSE(takes(fixed, R"({"b":2,"a":1})"));
  const auto any = made({JsonSchema{.schema = schema, .any_order = true}, ""});
  EXPECT_TRUE(takes(any, R"({"b":2,"a":1})"));
  EXPECT_TRUE(takes(any, R"({"a":1,"b":2})"));
  EXPECT_FALSE(takes(any, R"({"b":2,"a":1,"c":3})"));
  const auto open = made({JsonSchema{.schema = schema, .closed_objects = false}, ""});
  EXPECT_TRUE(takes(open, R"({"a":1,"b":2,"c":3})"));
  const auto compact = made({JsonSchema{.schema = schema, .compact = true}, ""});
  EXPECT_TRUE(takes(compact, R"({"a":1,"b":2})"));
  EXPECT_FALSE(takes(compact, R"({"a": 1,"b":2})"));
  EXPECT_FALSE(takes(compact, R"({"a":1, "b":2})"));
  const auto free = made(
      {JsonSchema{.schema = R"({"type":"object","properties":{"a":{}},"required":["a"]})", .compact = true},
       ""});
  EXPECT_TRUE(takes(free, R"({"a":[1,{"b":[],"c":true},"x"]})"));
  EXPECT_FALSE(takes(free, R"({"a":[1, 2]})"));
  const auto object = made({JsonObject{.compact = true}, ""});
  EXPECT_TRUE(takes(object, R"({"a":[1,{"b":null}]})"));
  EXPECT_TRUE(takes(object, "{}"));
  EXPECT_FALSE(takes(object, R"({"a": 1})"));
  EXPECT_FALSE(takes(object, R"({"a":[1, 2]})"));
}

TEST(Matcher, StructuralTagHoldsItsSchemas) {
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f="],"tags":[
      {"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"object","properties":{"n":{"type":"integer"}},
      "required":["n"]}},"end":"</f>"}]}})";
  const auto grammar = made({StructuralTag{tag}, ""});
  EXPECT_TRUE(takes(grammar, "hello <f=a>{\"n\":1}</f> bye"));
  EXPECT_FALSE(takes(grammar, "hello <f=a>{\"n\":\"x\"}</f>"));
  EXPECT_FALSE(takes(grammar, "<f=b>"));
  const std::string loose =
      R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"type":"array",
      "uniqueItems":true}}})";
  const auto refused = compile({StructuralTag{loose}, ""});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("`uniqueItems` at #"), std::string::npos) << refused.error().message;
}

TEST(Matcher, EndsByItselfWhereNothingCanFollow) {
  Matcher matcher(made({Choice{{"ab", "abc"}}, ""}), kEnds);
  push(matcher, "ab");
  EXPECT_FALSE(matcher.ended());
  EXPECT_EQ(allowed(matcher), "cEND");
  push(matcher, "c");
  EXPECT_TRUE(matcher.ended());
  EXPECT_FALSE(matcher.accept('x').ok());
}

TEST(Matcher, RefusesWhatTheMaskForbids) {
  Matcher matcher(made({Pattern{"ab"}, ""}), kEnds);
  EXPECT_EQ(allowed(matcher), "a");
  EXPECT_FALSE(matcher.accept('b').ok());
}

TEST(Matcher, CopiesAndRollsBack) {
  Matcher matcher(made({JsonSchema{R"({"type":"array","items":{"type":"integer"}})"}, ""}), kEnds);
  push(matcher, "[1");
  Matcher fork = matcher;
  push(matcher, "2]");
  EXPECT_TRUE(matcher.ended());
  push(fork, ",3]");
  EXPECT_TRUE(fork.ended());
  matcher.rollback(2);
  EXPECT_FALSE(matcher.ended());
  EXPECT_EQ(matcher.accepted(), 2U);
  push(matcher, ",7]");
  EXPECT_TRUE(matcher.ended());
  matcher.rollback(matcher.accepted());
  EXPECT_EQ(allowed(matcher), "[");
}

TEST(Matcher, BeginsBehindAMarker) {
  const auto vocabulary = byte_vocabulary({"</think>", "</think>\n\n[", "</think>no"});
  const auto grammar =
      made({JsonSchema{R"({"type":"array","items":{"type":"integer"}})"}, "</think>"}, vocabulary);
  Matcher matcher(grammar, kEnds);
  EXPECT_EQ(allowed(matcher).find("END"), std::string::npos);
  push(matcher, "so [ } x");
  Matcher whole = matcher, joined = matcher, wrong = matcher;
  push(matcher, "</think>");  // byte by byte
  EXPECT_EQ(allowed(matcher), "\t\n\r [") << "blanks may come between the two";
  push(matcher, "[1]");
  EXPECT_TRUE(matcher.ended());
  ASSERT_TRUE(whole.accept(257).ok());
  push(whole, "[]");
  EXPECT_TRUE(whole.ended());
  ASSERT_TRUE(joined.accept(258).ok());
  push(joined, "5]");
  EXPECT_TRUE(joined.ended());
  EXPECT_FALSE(wrong.accept(259).ok());
  // Back over the place where the constraint began.
  matcher.rollback(5);
  EXPECT_EQ(matcher.accepted(), 8U + 6U);
  push(matcher, "k>[");
  matcher.rollback(1);
  EXPECT_EQ(allowed(matcher), "\t\n\r [");
  push(matcher, "\n\n[");
  EXPECT_EQ(allowed(matcher).find("END"), std::string::npos);
}

TEST(Matcher, ViolationsOfAFinishedAnswerAreErrors) {
  const auto grammar =
      made({JsonSchema{R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})"}, ""});
  Matcher matcher(grammar, kEnds);
  push(matcher, "[1,1");
  const Status done = matcher.accept(']');
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().field, kSchemaViolation);
  EXPECT_NE(done.error().message.find("uniqueItems"), std::string::npos) << done.error().message;
  EXPECT_TRUE(takes(grammar, "[1,2]"));
}

TEST(Matcher, BlanksInJsonAreBounded) {
  const auto grammar = made({JsonSchema{R"({"type":"array","items":{"type":"integer"}})"}, ""});
  EXPECT_TRUE(takes(grammar, "[        1]"));
  EXPECT_FALSE(takes(grammar, "[         1]"));
}

TEST(Matcher, ObjectsAreClosedUnlessTheSchemaSaysOtherwise) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  EXPECT_FALSE(takes(made({JsonSchema{.schema = schema}, ""}), R"({"a":1,"b":2})"));
  EXPECT_TRUE(takes(made({JsonSchema{.schema = schema, .closed_objects = false}, ""}), R"({"a":1,"b":2})"));
  const std::string open =
      R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":true})";
  EXPECT_TRUE(takes(made({JsonSchema{.schema = open}, ""}), R"({"a":1,"b":2})"));
}

struct Refused {
  Constraint constraint;
  std::string_view says;
};

TEST(Constraint, ErrorsNameWhatIsWrong) {
  const Refused cases[] = {
      {{JsonSchema{"{"}, ""}, "schema"},
      {{JsonSchema{"3"}, ""}, "must be an object or a boolean"},
      {{JsonSchema{"false"}, ""}, "no value fits"},
      {{JsonSchema{R"({"type":"strin"})"}, ""}, "`type` at #"},
      {{JsonSchema{R"({"properties":{"a":{"minLength":-1}}})"}, ""}, "`minLength` at #/properties/a"},
      {{JsonSchema{R"({"items":{"$ref":"#/$defs/x"}})"}, ""}, "`$ref` at #/items"},
      {{JsonSchema{R"({"$ref":"https://example.com/schema"})"}, ""}, "https://example.com/schema"},
      {{JsonSchema{R"({"pattern":"["})"}, ""}, "`pattern` at #"},
      {{JsonSchema{R"({"type":"object","properties":{"a":false},"required":["a"]})"}, ""}, "no value fits"},
      {{JsonSchema{R"({"allOf":[{"type":"string"},{"type":"integer"}]})"}, ""}, "no value fits"},
      {{Pattern{"("}, ""}, "pattern"},
      {{Pattern{""}, ""}, "empty"},
      {{Choice{}, ""}, "at least one option"},
      {{ContextFree{.grammar = "root ::= missing"}, ""}, "missing"},
      {{ContextFree{.grammar = "root := x"}, ""}, "grammar"},
      {{StructuralTag{"{}"}, ""}, "grammar"},
  };
  for (const Refused& one : cases) {
    const auto grammar = compile(one.constraint);
    ASSERT_FALSE(grammar.ok()) << one.says;
    EXPECT_NE(grammar.error().message.find(one.says), std::string::npos) << grammar.error().message;
  }
}

TEST(Constraint, DeepAndLargeSchemasEndWithAnError) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(100, '}');
  EXPECT_FALSE(compile({JsonSchema{deep}, ""}).ok());
  // Each of these multiplies the alternatives by two.
  std::string wide = R"({"type":"object","allOf":[)";
  for (int i = 0; i < 40; ++i)
    wide += (i > 0 ? "," : "") + std::string(R"({"anyOf":[{"required":["a)") + std::to_string(i) +
            R"("]},{"required":["b)" + std::to_string(i) + R"("]}]})";
  const auto refused = compile({JsonSchema{wide + "]}"}, ""});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::LimitExceeded) << refused.error().message;
}

// Written out at each of its references, the last definition would be there 2^30 times.
TEST(Constraint, DefinitionsAreSharedByTheirReferences) {
  std::string text = R"({"$ref":"#/$defs/n0","$defs":{)";
  for (int i = 0; i < 30; ++i) {
    const std::string next = R"({"$ref":"#/$defs/n)" + std::to_string(i + 1) + R"("})";
    text += "\"n" + std::to_string(i) + R"(":{"type":"object","properties":{"a":)" + next +
            R"(,"b":{"anyOf":[)" + next + R"(,{"type":"null"}]}}},)";
  }
  const auto grammar = compile({JsonSchema{text + R"("n30":{"type":"integer"}}})"}, ""});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(takes(*grammar, R"({"a":{"b":{"a":{"b":null}}},"b":null})"));
  EXPECT_FALSE(takes(*grammar, R"({"a":{"b":{"a":{"c":null}}}})"));
}

// A grammar that grows without end fails by the limit on its time, which it names.
TEST(Constraint, CompilingIsLimited) {
  std::string many = "root ::= a0\n";
  for (int i = 0; i < 2600; ++i) {
    const std::string n = std::to_string(i);
    many += "a" + n + " ::= ";
    for (const char c : {'a', 'b', 'c', 'd'}) many += std::string("([") + c + "-z]\"" + n + "\"){9,128}";
    many += "|a" + std::to_string((i + 1) % 2600) + "\n";
  }
  const auto refused = compile({request::ContextFree{.grammar = many}, ""});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("it takes more than 2 s of the processor"), std::string::npos)
      << refused.error().message;
}

TEST(Matcher, EndsWhereTheRequestNamesNoEnd) {
  const auto grammar = compile({request::Pattern{"a+"}, ""});
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(*grammar, {});
  ASSERT_TRUE(matcher.accept('a').ok());
  EXPECT_FALSE(matcher.ended());
  EXPECT_TRUE(matcher.accept(kEnd).ok());
  EXPECT_TRUE(matcher.ended());
}

}  // namespace
}  // namespace sluice::grammar
