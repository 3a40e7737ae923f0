// The tables hold for every operation: kinds and ranges are checked, what is ignored is, what is refused is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "api/fields/field_table.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

// A body that the operation accepts.
json::object base_body(const RequestSchema& schema) {
  json::object all{{"messages", {{{"role", "user"}, {"content", "x"}}}},
                   {"prompt", "x"},
                   {"input", "x"},
                   {"text_input", "x"},
                   {"max_tokens", 1},
                   {"tokens", {65}},
                   {"requests", json::parse("[[0, 1, 1]]")}};
  json::object out;
  for (std::span<const Field> group : schema.groups) {
    for (const Field& field : group)
      if (field.required) out[field.name] = all.at(field.name);
  }
  if (out.empty() && schema.name == "TokenizeRequest") out["prompt"] = "x";
  return out;
}

using Visit = std::function<void(const Operation&, const Field&, const std::string& path)>;

void visit_fields(const Operation& operation, std::span<const Field> fields, const std::string& prefix,
                  const Visit& visit) {
  for (const Field& field : fields) {
    visit(operation, field, prefix + std::string(field.name));
    visit_fields(operation, field.members, prefix + std::string(field.name) + ".", visit);
  }
}

void visit_all(const Visit& visit) {
  for (const Operation& operation : operations()) {
    if (operation.request == nullptr) continue;
    for (std::span<const Field> group : operation.request->groups) {
      for (const Field& field : group)
        if (operation.request->find(field.name) == &field) visit_fields(operation, {&field, 1}, "", visit);
    }
  }
}

// The body with this value at the path "a", "a.b" or deeper.
std::string with(const Operation& operation, const std::string& path, json::value value) {
  json::object body = base_body(*operation.request);
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    body[path] = std::move(value);
  } else {
    json::value inner = std::move(value);
    for (size_t end = path.size(), at = path.rfind('.'); at != std::string::npos;
         end = at, at = path.rfind('.', at - 1))
      inner = json::object{{path.substr(at + 1, end - at - 1), std::move(inner)}};
    body[path.substr(0, dot)] = std::move(inner);
  }
  return write_json(body);
}

class FieldTest : public testing::Test {
 protected:
  // "code param" of a refusal, "" otherwise
  std::string verdict(const Operation& operation, const std::string& body) {
    const Reply reply = rig_.call(operation.method, operation.path, body);
    const auto* error = std::get_if<ApiError>(&reply);
    if (error == nullptr) return "";
    EXPECT_FALSE(error->message.empty());
    return error->code + " " + error->param;
  }
  Rig rig_;
};

TEST_F(FieldTest, EveryBaseBodyIsAccepted) {
  for (const Operation& operation : operations()) {
    if (operation.request == nullptr) continue;
    EXPECT_EQ(verdict(operation, write_json(base_body(*operation.request))), "") << operation.path;
  }
}

TEST_F(FieldTest, EveryUsedFieldIsRead) {
  visit_all([](const Operation& operation, const Field& field, const std::string& path) {
    const bool used = field.treatment == Treatment::Used;
    EXPECT_EQ(used, field.read != nullptr || !field.members.empty()) << operation.path << " " << path;
    EXPECT_FALSE(field.meaning.empty()) << path;
  });
}

TEST_F(FieldTest, ValuesOfAnotherKindAreRefused) {
  visit_all([&](const Operation& operation, const Field& field, const std::string& path) {
    if (field.treatment != Treatment::Used || field.shape.kind == Kind::Any) return;
    json::value wrong = 1.5;
    if (field.shape.kind == Kind::Number) wrong = "0.5";
    EXPECT_EQ(verdict(operation, with(operation, path, wrong)), "invalid_value " + path) << operation.path;
  });
}

TEST_F(FieldTest, NumbersOutOfRangeAreRefused) {
  visit_all([&](const Operation& operation, const Field& field, const std::string& path) {
    const bool whole = field.shape.kind == Kind::Integer;
    if (field.treatment != Treatment::Used || (!whole && field.shape.kind != Kind::Number)) return;
    const double step = whole ? 1 : 0.001;
    for (const double value : {field.shape.low - step, field.shape.high + step, 1e15, -1e15})
      EXPECT_EQ(verdict(operation, with(operation, path, value)), "invalid_value " + path)
          << operation.path << " " << value;
    for (const char* text : {"1e20", "-1e20", "9223372036854775808", "1e308"}) {
      std::string body = with(operation, path, "@");
      body.replace(body.find("\"@\""), 3, text);
      EXPECT_EQ(verdict(operation, body), "invalid_value " + path) << operation.path << " " << text;
    }
  });
}

// Numbers that are in range and of no use to arithmetic are taken or refused, like any other.
TEST_F(FieldTest, TinyNumbersAreAnswered) {
  visit_all([&](const Operation& operation, const Field& field, const std::string& path) {
    if (field.treatment != Treatment::Used || field.shape.kind != Kind::Number) return;
    for (const double value : {-0.0, 5e-324, 1e-45}) {
      const std::string found = verdict(operation, with(operation, path, value));
      EXPECT_TRUE(found.empty() || found.starts_with("invalid_value ")) << operation.path << " " << found;
    }
  });
}

TEST_F(FieldTest, NullMeansMissing) {
  visit_all([&](const Operation& operation, const Field&, const std::string& path) {
    if (base_body(*operation.request).contains(path)) return;
    EXPECT_EQ(verdict(operation, with(operation, path, nullptr)), "") << operation.path << " " << path;
  });
}

TEST_F(FieldTest, IgnoredAndUnsupportedFieldsAreTreatedAsTheTableSays) {
  const json::value odd = {{"odd", "value"}};
  visit_all([&](const Operation& operation, const Field& field, const std::string& path) {
    if (field.treatment == Treatment::Used) return;
    const bool refused = field.treatment == Treatment::Unsupported;
    EXPECT_EQ(verdict(operation, with(operation, path, odd)), refused ? "unsupported_parameter " + path : "")
        << operation.path;
  });
}

TEST_F(FieldTest, BodiesThatAreNoObjects) {
  const std::string deep = R"({"messages":)" + std::string(100, '[') + std::string(100, ']') + "}";
  for (const Operation& operation : operations()) {
    if (operation.request == nullptr) continue;
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("[]"), std::string("7"),
          std::string(R"({"model":"a","model":"b"})"), std::string(R"({"n":1e999})"),
          std::string(R"({"n":NaN})"), std::string("{\"a\":\"\xff\"}"), deep})
      EXPECT_EQ(verdict(operation, body), "invalid_json ") << operation.path << " " << body.substr(0, 40);
  }
}

TEST_F(FieldTest, ValuesThatAskForNothingAreAccepted) {
  const auto accepted = [&](std::string_view fields) {
    return rig_.refusal("/v1/chat/completions",
                        R"({"messages":[{"role":"user","content":"x"}],)" + std::string(fields) + "}");
  };
  for (const char* fields :
       {R"("tools":[])", R"("tool_choice":"none")", R"("response_format":{"type":"text"})",
        R"("modalities":["text"])", R"("functions":[])", R"("mirostat":0)", R"("dry_multiplier":0.0)",
        R"("unheard_of":{"a":1})"})
    EXPECT_EQ(accepted(fields), "accepted") << fields;
  EXPECT_EQ(accepted(R"("tool_choice":"required")"),
            "400 invalid_value tool_choice: 'tool_choice' asks for a call, but 'tools' has no function");
}

TEST_F(FieldTest, ErrorsNameFieldValueAndLimit) {
  const auto refused = [&](std::string_view fields) {
    return rig_.refusal("/v1/completions", R"({"prompt":"x",)" + std::string(fields) + "}");
  };
  EXPECT_EQ(refused(R"("temperature":2.5)"),
            "400 invalid_value temperature: 'temperature' is 2.5; it must be from 0 to 2");
  EXPECT_EQ(refused(R"("n":"3")"), "400 invalid_value n: 'n' is \"3\"; it must be an integer");
  EXPECT_EQ(refused(R"("logit_bias":{"a":1})"),
            "400 invalid_value logit_bias: 'logit_bias' has 'a'; it must hold token ids with numbers");
  EXPECT_EQ(refused(R"("logit_bias":{"999":1})"),
            "400 invalid_value logit_bias: logit_bias holds token 999; the vocabulary ends at 258");
  EXPECT_EQ(refused(R"("logit_bias":{"9":101})"),
            "400 invalid_value logit_bias: logit_bias is 101; it must be from -100 to 100");
  EXPECT_EQ(refused(R"("min_tokens":17)"),
            "400 invalid_value min_tokens: min_tokens is 17; it must not be over max_tokens, which is 16");
  EXPECT_EQ(refused(R"("best_of":1,"n":2)"),
            "400 invalid_value best_of: best_of is 1; it must be at least n, which is 2");
  EXPECT_EQ(refused(R"("stop_token_ids":[259])"),
            "400 invalid_value stop_token_ids: stop_token_ids holds token 259; the vocabulary ends at 258");
  EXPECT_EQ(
      refused(R"("allowed_token_ids":[])"),
      "400 invalid_value allowed_token_ids: allowed_token_ids is empty; at least 1 token must be allowed");
  EXPECT_EQ(refused(R"("bad_words":[""])"), "400 invalid_value bad_words: 'bad_words' holds an empty string");
  EXPECT_EQ(refused(R"("cache_salt":"a b")"),
            "400 invalid_value cache_salt: 'cache_salt' has 3 bytes; it must be 1 to 256 printable ASCII "
            "characters");
  EXPECT_EQ(refused(R"("request_id":"a/b")"),
            "400 invalid_value request_id: 'request_id' must be 1 to 128 letters, digits or any of '-_.:'");
  EXPECT_EQ(refused(R"("early_stopping":5)"),
            "400 invalid_value early_stopping: 'early_stopping' is 5; it must be true, false or \"never\"");
  EXPECT_EQ(
      refused(R"("truncation_side":"up")"),
      "400 invalid_value truncation_side: 'truncation_side' is \"up\"; it must be \"left\" or \"right\"");
  EXPECT_TRUE(refused(R"("stop":[""])").starts_with("400 invalid_value stop: "));
  EXPECT_TRUE(refused(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])")
                  .starts_with("400 invalid_value stop: "));
}

}  // namespace
}  // namespace sluice::api
