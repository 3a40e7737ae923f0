// What tools and the reasoning of a request make of the text that its answer may have.
#include <gtest/gtest.h>

#include "chat/formats/model_format.h"
#include "grammar/matcher.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kCallsRoute = "/v1/chat/completions";
constexpr std::string_view kCallsTemplate =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if opens %}<think>\n{% endif %}{% endif %}"
    "{# <think> </think> #}";
const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}},)"
    R"({"type":"function","function":{"name":"sub","parameters":{"type":"object","properties":{}}}}])";
const std::string kSaysHi = R"("messages":[{"role":"user","content":"Hi"}])";
const std::string kOpens = R"("chat_template_kwargs":{"opens":true})";

class CallConstraintTest : public testing::Test {
 protected:
  CallConstraintTest() : template_(*chat::ChatTemplate::parse(std::string(kCallsTemplate))) {
    ServedModel& model = rig_.models[0];
    model.chat_template = &template_;
    model.context = 4000;
    Result<chat::ModelFormat> format = chat::make_model_format(template_, *model.tokenizer);
    EXPECT_TRUE(format.ok());
    model.format = std::make_shared<chat::ModelFormat>(std::move(*format));
  }

  std::optional<request::Constraint> constraint(std::string_view path, const std::string& fields) {
    return rig_.submission(path, "{" + fields + "," + kSaysHi + "}").request.sampling().constraint;
  }

  // Bytes of the text that may be written, one token each, and "$" where the answer may end then.
  std::string taken(const std::string& fields, const std::string& text, std::string_view path = kCallsRoute) {
    const std::optional<request::Constraint> wanted = constraint(path, fields);
    if (!wanted) return text + "$";
    const std::vector<Token> ends{258};
    grammar::Matcher matcher(*rig_.models[0].grammars->get(*wanted), ends, wanted->start);
    std::string out;
    for (const char c : text) {
      if (!may(matcher, static_cast<unsigned char>(c)) || !matcher.accept(static_cast<unsigned char>(c)).ok())
        return out;
      out += c;
    }
    return matcher.ended() || may(matcher, 258) ? out + "$" : out;
  }

  static bool may(const grammar::Matcher& matcher, Token token) {
    if (matcher.ended()) return false;
    std::vector<int32_t> mask(matcher.mask_words());
    const Result<bool> filled = matcher.fill(mask);
    const auto index = static_cast<size_t>(token);
    return filled && (!*filled || ((mask[index / 32] >> (index % 32)) & 1) != 0);
  }

  chat::ChatTemplate template_;
  Rig rig_;
};

const std::string kAdd = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
const std::string kSub = "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>";

TEST_F(CallConstraintTest, RequiredFromTheFirstToken) {
  const std::string fields = R"("tool_choice":"required",)" + kTools;
  EXPECT_EQ(taken(fields, "Hello"), "");
  EXPECT_EQ(taken(fields, kAdd), kAdd + "$");
  EXPECT_EQ(taken(fields, kAdd + "\n" + kSub), kAdd + "\n" + kSub + "$");
  EXPECT_EQ(taken(R"("parallel_tool_calls":false,)" + fields, kAdd + "\n" + kSub), kAdd);
  EXPECT_EQ(taken(fields, "<tool_call>\n{\"name\": \"mul"), "<tool_call>\n{\"name\": \"");
}

TEST_F(CallConstraintTest, NamedFunctions) {
  const std::string fields = R"("tool_choice":{"type":"function","function":{"name":"sub"}},)" + kTools;
  EXPECT_EQ(taken(fields, kSub), kSub + "$");
  EXPECT_EQ(taken(fields, kSub + "\n" + kSub), kSub) << "one call, although calls may be parallel";
  EXPECT_EQ(taken(fields, kAdd), "<tool_call>\n{\"name\": \"");
  const std::string allowed =
      R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"sub"}}]}},)" +
      kTools;
  EXPECT_EQ(taken(allowed, kAdd), "<tool_call>\n{\"name\": \"");
}

TEST_F(CallConstraintTest, AutoFromWhereACallBegins) {
  EXPECT_EQ(taken(kTools, "Any text {\"name\": 1}"), "Any text {\"name\": 1}$");
  EXPECT_EQ(taken(kTools, "So: " + kAdd + " more"), "So: " + kAdd + " more$");
  const std::string begun = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": ";
  EXPECT_EQ(taken(kTools, begun + "\"x\""), begun);
  EXPECT_EQ(taken(R"("parallel_tool_calls":false,)" + kTools, kAdd + kSub), kAdd);
}

TEST_F(CallConstraintTest, OtherDialects) {
  const std::string anthropic =
      R"("max_tokens":50,"tools":[{"name":"sub","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"})";
  EXPECT_EQ(taken(anthropic, "Hello", "/v1/messages"), "");
  EXPECT_EQ(taken(anthropic, kSub, "/v1/messages"), kSub + "$");
  EXPECT_EQ(taken(kTools, "<tool_call>\n{\"name\": \"mul", "/api/chat"), "<tool_call>\n{\"name\": \"");
}

TEST_F(CallConstraintTest, CallsBesideASchema) {
  const std::string fields =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"x":{"type":"boolean"}},"required":["x"]}}},)" +
      kTools;
  EXPECT_EQ(taken(fields, R"({"x": true})"), R"({"x": true}$)");
  EXPECT_EQ(taken(fields, kAdd), kAdd + "$");
  EXPECT_EQ(taken(fields, "Hello"), "");
}

TEST_F(CallConstraintTest, BeginsAfterTheReasoning) {
  const std::string fields = R"("tool_choice":"required",)" + kTools;
  EXPECT_EQ(taken(fields, "<think>\nHm <tool_call> x\n</think>\n\n" + kAdd),
            "<think>\nHm <tool_call> x\n</think>\n\n" + kAdd + "$");
  EXPECT_EQ(taken(kOpens + "," + fields, "Hm.\n</think>\n\n" + kAdd), "Hm.\n</think>\n\n" + kAdd + "$");
  EXPECT_EQ(taken(kOpens + "," + fields, "Hm.\n</think>\n\nHello"), "Hm.\n</think>\n\n");
  const std::string object = R"("response_format":{"type":"json_object"},)" + kOpens;
  EXPECT_EQ(taken(object, "Hm.\n</think>\n\n{}"), "Hm.\n</think>\n\n{}$");
}

TEST_F(CallConstraintTest, BudgetsEndTheReasoning) {
  for (const char* budget :
       {R"("max_thinking_tokens":3)", R"("thinking_token_budget":3)", R"("thinking_budget":3)"}) {
    const std::string fields = std::string(budget) + "," + kOpens;
    EXPECT_EQ(taken(fields, "Hmmm"), "Hmm") << budget;
    EXPECT_EQ(taken(fields, "Hmm\n</think>\n\nAny text."), "Hmm\n</think>\n\nAny text.$") << budget;
  }
  EXPECT_EQ(taken(R"("thinking_budget":30,)" + kOpens, "H</think>So."), "H</think>So.$");
  EXPECT_EQ(taken(R"("thinking_budget":1)", "<think>Hm"), "<think>H");
  EXPECT_EQ(taken(R"("thinking_budget":1)", "<thin>Hm"), "<thin>Hm$");
  EXPECT_EQ(taken(R"("reasoning_effort":"none",)" + kOpens, "H"), "");
  EXPECT_EQ(taken(R"("max_tokens":50,"thinking":{"type":"enabled","budget_tokens":2})", "Any text.",
                  "/v1/messages"),
            "Any text.$");
  EXPECT_EQ(constraint("/api/chat", R"("think":false)")->start.budget, 0);
  EXPECT_EQ(constraint("/api/chat", R"("think":"low")")->start.budget, 1024);
  EXPECT_EQ(constraint(kCallsRoute, R"("reasoning_effort":"high")"), std::nullopt);
}

// Control tokens that are marks stand for their spelling in structural tags, and nowhere else.
TEST_F(CallConstraintTest, MarksAreTokens) {
  const tokenizer::Tokenizer tokenizer = make_byte_tokenizer();
  const auto vocabulary = std::make_shared<const grammar::Vocabulary>(
      tokenizer, 259, std::vector<Token>{kBegin}, std::vector<Token>{kTurnStart});
  grammar::GrammarStore store(vocabulary);
  const std::vector<Token> ends{kBegin};
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"const_string","value":"<|im_start|>"}})";
  grammar::Matcher marked(*store.get({request::StructuralTag{tag}, ""}), ends);
  EXPECT_TRUE(may(marked, kTurnStart));
  EXPECT_TRUE(may(marked, '<'));
  EXPECT_FALSE(may(marked, kTurnEnd));
  EXPECT_TRUE(marked.accept(kTurnStart).ok());
  EXPECT_TRUE(marked.ended());
  const grammar::Matcher plain(*store.get({request::Choice{{"<|im_start|>"}}, ""}), ends);
  EXPECT_FALSE(may(plain, kTurnStart));
  EXPECT_TRUE(may(plain, '<'));
}

TEST_F(CallConstraintTest, SchemasThatCannotBeHeldPassUnlessStrict) {
  const std::string unique =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}])";
  EXPECT_NE(constraint(kCallsRoute, unique), std::nullopt);
  const std::string broken =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"$ref":"http://x/y"}}}}}])";
  EXPECT_NE(constraint(kCallsRoute, R"("tool_choice":"required",)" + broken), std::nullopt);
}

}  // namespace
}  // namespace sluice::api
