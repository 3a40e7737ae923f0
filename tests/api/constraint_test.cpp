// Fields that say what an answer must be, in every dialect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

using request::Choice;
using request::Constraint;
using request::ContextFree;
using request::JsonObject;
using request::JsonSchema;
using request::Pattern;
using request::StructuralTag;

class ConstraintTest : public testing::Test {
 protected:
  std::optional<Constraint> chat(std::string_view fields) {
    return rig_.submission("/v1/chat/completions", fmt::format("{{{},{}}}", fields, kMessages))
        .request.sampling()
        .constraint;
  }
  std::string refused(std::string_view fields) {
    return rig_.refusal("/v1/chat/completions", fmt::format("{{{},{}}}", fields, kMessages));
  }
  static constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"x"}])";
  static constexpr std::string_view kSchema = R"({"type":"integer"})";
  Rig rig_;
};

Constraint schema(bool strict = false) {
  return {JsonSchema{.schema = R"({"type":"integer"})", .strict = strict}, ""};
}

TEST_F(ConstraintTest, ResponseFormat) {
  EXPECT_EQ(chat(R"("response_format":{"type":"text"})"), std::nullopt);
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object"})"), (Constraint{JsonObject{}, ""}));
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object","schema":{"type":"integer"}})"), schema());
  EXPECT_EQ(
      chat(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"integer"}}})"),
      schema());
  EXPECT_EQ(
      chat(
          R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer"},"strict":true}})"),
      schema(true));
}

TEST_F(ConstraintTest, OptionsOfJson) {
  const auto with = [&](std::string_view options) {
    return chat(fmt::format(R"("structured_outputs":{{"json":{},{}}})", kSchema, options));
  };
  const auto made = [](bool closed, bool any_order, bool compact) {
    return Constraint{JsonSchema{.schema = std::string(kSchema),
                                 .closed_objects = closed,
                                 .any_order = any_order,
                                 .compact = compact},
                      ""};
  };
  EXPECT_EQ(with(R"("any_order":true)"), made(true, true, false));
  EXPECT_EQ(with(R"("disable_any_whitespace":true,"any_order":null)"), made(true, false, true));
  EXPECT_EQ(with(R"("disable_additional_properties":false)"), made(false, false, false));
  EXPECT_EQ(with(R"("disable_additional_properties":true,"disable_fallback":true)"), schema());
  EXPECT_EQ(chat(R"("structured_outputs":{"json_object":true,"disable_any_whitespace":true})"),
            (Constraint{JsonObject{.compact = true}, ""}));
  EXPECT_NE(refused(R"("structured_outputs":{"regex":"a","any_order":true})").find("not JSON"),
            std::string::npos);
  EXPECT_NE(refused(R"("structured_outputs":{"json":{},"any_order":1})").find("any_order"),
            std::string::npos);
  EXPECT_NE(refused(R"("structured_outputs":{"json":{},"order":"any"})").find("'order'"), std::string::npos);
  EXPECT_NE(
      refused(R"("structured_outputs":{"json":{},"whitespace_pattern":" "})").find("whitespace_pattern"),
      std::string::npos);
}

TEST_F(ConstraintTest, OtherEngines) {
  EXPECT_EQ(chat(R"("structured_outputs":{"json":{"type":"integer"}})"), schema());
  EXPECT_EQ(chat(R"("structured_outputs":{"json_object":true})"), (Constraint{JsonObject{}, ""}));
  EXPECT_EQ(chat(R"("structured_outputs":{"regex":"a+"})"), (Constraint{Pattern{"a+"}, ""}));
  EXPECT_EQ(chat(R"("structured_outputs":{"choice":["a","b"]})"), (Constraint{Choice{{"a", "b"}}, ""}));
  EXPECT_EQ(chat(R"("structured_outputs":{"grammar":"root ::= \"a\""})"),
            (Constraint{ContextFree{.grammar = "root ::= \"a\""}, ""}));
  EXPECT_EQ(chat(R"("guided_json":{"type":"integer"})"), schema());
  EXPECT_EQ(chat(R"("guided_json":"{\"type\":\"integer\"}")"), schema());
  EXPECT_EQ(chat(R"("guided_regex":"a+")"), (Constraint{Pattern{"a+"}, ""}));
  EXPECT_EQ(chat(R"("guided_choice":["a"])"), (Constraint{Choice{{"a"}}, ""}));
  EXPECT_EQ(chat(R"("guided_grammar":"start: \"a\"")"),
            (Constraint{ContextFree{.syntax = ContextFree::Syntax::Lark, .grammar = "start: \"a\""}, ""}));
  EXPECT_EQ(chat(R"("grammar":"root ::= [a-z]+")"),
            (Constraint{ContextFree{.grammar = "root ::= [a-z]+"}, ""}));
  EXPECT_EQ(chat(R"("json_schema":{"type":"integer"})"), schema());
  EXPECT_EQ(chat(R"("grammar":"")"), std::nullopt);
  const auto ollama = [&](std::string_view format) {
    return rig_.submission("/api/chat", fmt::format(R"({{"format":{},{}}})", format, kMessages))
        .request.sampling()
        .constraint;
  };
  EXPECT_EQ(ollama(R"("json")"), (Constraint{JsonObject{}, ""}));
  EXPECT_EQ(ollama(kSchema), schema());
  EXPECT_EQ(ollama(R"("")"), std::nullopt);
  const std::string anthropic = fmt::format(
      R"({{"max_tokens":9,"output_config":{{"format":{{"type":"json_schema","schema":{}}}}},{}}})", kSchema,
      kMessages);
  EXPECT_EQ(rig_.submission("/v1/messages", anthropic).request.sampling().constraint, schema());
  const std::string response = fmt::format(
      R"({{"input":"x","text":{{"format":{{"type":"json_schema","name":"n","schema":{}}}}}}})", kSchema);
  EXPECT_EQ(rig_.submission("/v1/responses", response).request.sampling().constraint, schema());
}

TEST_F(ConstraintTest, RefusalsNameFieldKeywordAndPath) {
  EXPECT_EQ(refused(R"("response_format":{"type":"yaml"})"),
            "400 invalid_value response_format: 'type' is \"yaml\"; it must be \"text\", \"json_object\", "
            "\"json_schema\" or "
            "\"structural_tag\"");
  EXPECT_EQ(refused(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})"),
            "400 invalid_value response_format: 'schema' is missing");
  EXPECT_EQ(refused(R"("guided_regex":"a","guided_choice":["b"])"),
            "400 invalid_value guided_choice: the form of the answer is given twice; one field may say it");
  EXPECT_EQ(
      refused(
          R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"type":"text"}}}}})"),
      "400 json_schema_invalid response_format: 'response_format': `type` at #/properties/a must be null, "
      "boolean, "
      "integer, number, string, array, object, or an array of these");
  const std::string_view unique =
      R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})";
  EXPECT_EQ(refused(fmt::format(
                R"("response_format":{{"type":"json_schema","json_schema":{{"strict":true,"schema":{}}}}})",
                unique)),
            "400 json_schema_invalid response_format: 'response_format': `uniqueItems` at #/properties/a "
            "cannot be enforced "
            "while the answer is generated, which `strict` asks for");
  EXPECT_EQ(refused(fmt::format(R"("guided_json":{})", unique)), "accepted");
  EXPECT_TRUE(
      refused(R"("grammar":"root ::= nowhere")").starts_with("400 invalid_value grammar: 'grammar': "));
}

TEST_F(ConstraintTest, AnswersThatDoNotFitAreErrors) {
  engine::Finished end = failed(ErrorCode::InvalidArgument, "it does not fit");
  end.error->field = "schema_violation";
  EXPECT_EQ(rig_.answer("/v1/chat/completions", fmt::format("{{{}}}", kMessages), {{0, end}}),
            "error: 422 schema_violation it does not fit");
}

}  // namespace
}  // namespace sluice::api
