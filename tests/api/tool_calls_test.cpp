// Tools and reasoning through every dialect: what the prompt shows and what answers are made of.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kChatRoute = "/v1/chat/completions", kMessagesRoute = "/v1/messages",
                           kOllamaRoute = "/api/chat", kResponsesRoute = "/v1/responses";

// Writes tools and calls as Hermes does and opens the reasoning where it is asked to.
constexpr std::string_view kTemplate =
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking %}<think>\n{% endif %}{% endif %}{# <think> </think> #}";

const std::string kOpenAiTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])";
const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}])";
const std::string kAnswer =
    "<think>\nhm é\n</think>\n\nSo:\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": "
    "1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>";

class ToolCallTest : public testing::Test {
 protected:
  ToolCallTest() : template_(*chat::ChatTemplate::parse(std::string(kTemplate))) {
    ServedModel& model = rig_.models[0];
    model.chat_template = &template_;
    model.context = 4000;
    Result<chat::ModelFormat> format = chat::make_model_format(template_, *model.tokenizer);
    EXPECT_TRUE(format.ok());
    EXPECT_EQ(format->output.tools->name, "hermes");
    EXPECT_TRUE(format->shows_tools && format->shows_calls && format->reasons());
    model.format = std::make_shared<chat::ModelFormat>(std::move(*format));
  }

  // The answer whose text comes in pieces of so many bytes, or more where a character would be cut.
  std::string answer(std::string_view path, const std::string& fields, const std::string& text, size_t cut) {
    Events events;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = std::min(begin + cut, text.size());
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      events.push_back({0, delta(text.substr(begin, end - begin))});
    }
    events.push_back({0, choice_end()});
    events.push_back({0, finished(10, 0, static_cast<int>(text.size()))});
    return rig_.answer(path, "{\"model\":\"tiny\"," + fields + "}", events);
  }
  std::string prompt(std::string_view path, const std::string& fields) {
    return rig_.shown(rig_.submission(path, "{" + fields + "}").request.prompt);
  }
  // The objects of a stream of data: lines.
  static std::vector<json::object> events_of(const std::string& stream) {
    std::vector<json::object> out;
    for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos;) {
      const size_t end = stream.find("\n\n", at);
      out.push_back(json::parse(stream.substr(at + 6, end - at - 6)).as_object());
      at = end;
    }
    return out;
  }

  chat::ChatTemplate template_;
  Rig rig_;
};

struct Gathered {
  std::string content, reasoning, finish;
  std::vector<chat::ToolCall> calls;
};

Gathered gather_chat(const std::vector<json::object>& chunks) {
  Gathered out;
  for (const json::object& chunk : chunks) {
    if (chunk.at("choices").as_array().empty()) continue;
    const json::object& choice = chunk.at("choices").at(0).as_object();
    const json::object& delta = choice.at("delta").as_object();
    if (delta.contains("content")) out.content += delta.at("content").as_string();
    if (delta.contains("reasoning_content")) out.reasoning += delta.at("reasoning_content").as_string();
    if (choice.at("finish_reason").is_string()) out.finish = choice.at("finish_reason").as_string();
    if (!delta.contains("tool_calls")) continue;
    const json::object& call = delta.at("tool_calls").at(0).as_object();
    const json::object& function = call.at("function").as_object();
    if (call.contains("id"))
      out.calls.push_back(
          {std::string(function.at("name").as_string()), std::string(call.at("id").as_string()), ""});
    out.calls.at(call.at("index").to_number<size_t>()).arguments += function.at("arguments").as_string();
  }
  return out;
}

TEST_F(ToolCallTest, ChatGivesContentReasoningAndCallsWholeAndStreamed) {
  const json::value whole = json::parse(answer(kChatRoute, kOpenAiTools + "," + kHi, kAnswer, 7));
  const json::object& message = whole.at("choices").at(0).at("message").as_object();
  EXPECT_EQ(message.at("content"), "So:");
  EXPECT_EQ(message.at("reasoning_content"), "hm é");
  ASSERT_EQ(message.at("tool_calls").as_array().size(), 2u);
  EXPECT_EQ(message.at("tool_calls").at(1).at("function"),
            (json::value{{"name", "add"}, {"arguments", R"({"a": 2})"}}));
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "tool_calls");
  EXPECT_GT(whole.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 5);
  for (const size_t cut : {1, 2, 3, 1000}) {
    const Gathered streamed = gather_chat(
        events_of(answer(kChatRoute, R"("stream":true,)" + kOpenAiTools + "," + kHi, kAnswer, cut)));
    EXPECT_EQ(streamed.content, "So:");
    EXPECT_EQ(streamed.reasoning, "hm é");
    EXPECT_EQ(streamed.finish, "tool_calls");
    ASSERT_EQ(streamed.calls.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const json::object& call = message.at("tool_calls").at(i).as_object();
      EXPECT_EQ(streamed.calls[i].id, call.at("id").as_string());
      EXPECT_EQ(streamed.calls[i].arguments, call.at("function").at("arguments").as_string());
    }
  }
}

TEST_F(ToolCallTest, TheFirstCallAloneWhereTheyMustNotBeParallel) {
  const json::value whole = json::parse(
      answer(kChatRoute, R"("parallel_tool_calls":false,)" + kOpenAiTools + "," + kHi, kAnswer, 5));
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("tool_calls").as_array().size(), 1u);
}

TEST_F(ToolCallTest, WithoutToolsCallsStayTextAndReasoningCanStayInIt) {
  const json::value none =
      json::parse(answer(kChatRoute, R"("tool_choice":"none",)" + kOpenAiTools + "," + kHi, kAnswer, 5));
  const json::object& message = none.at("choices").at(0).at("message").as_object();
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_TRUE(message.at("content").as_string().starts_with("So:\n<tool_call>"));
  EXPECT_EQ(none.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(prompt(kChatRoute, R"("tool_choice":"none",)" + kOpenAiTools + "," + kHi),
            prompt(kChatRoute, kHi));
  const json::value raw = json::parse(answer(kChatRoute, R"("reasoning_format":"none",)" + kHi, kAnswer, 5));
  EXPECT_EQ(raw.at("choices").at(0).at("message").at("content").as_string(), kAnswer);
  const json::value hidden =
      json::parse(answer(kChatRoute, R"("include_reasoning":false,)" + kHi, "<think>a</think>b", 5));
  EXPECT_EQ(hidden.at("choices").at(0).at("message"),
            (json::value{{"role", "assistant"}, {"content", "b"}, {"refusal", nullptr}}));
}

TEST_F(ToolCallTest, ThePromptMayHaveOpenedTheReasoning) {
  const json::value whole =
      json::parse(answer(kChatRoute, R"("chat_template_kwargs":{"enable_thinking":true},)" + kHi,
                         "why\n</think>\n\nbecause", 3));
  const json::object& message = whole.at("choices").at(0).at("message").as_object();
  EXPECT_EQ(message.at("reasoning_content"), "why");
  EXPECT_EQ(message.at("content"), "because");
}

TEST_F(ToolCallTest, ToolsAreRenderedTheSameEveryTimeAndOneByteShowsFromThereOn) {
  const std::string request = kOpenAiTools + "," + kHi;
  const std::string first = prompt(kChatRoute, request);
  EXPECT_EQ(first, prompt(kChatRoute, request));
  EXPECT_NE(
      first.find(R"({"type": "function", "function": {"name": "add", "description": "", "parameters":)"),
      std::string::npos)
      << first;
  std::string changed = request;
  changed.replace(changed.find("integer"), 7, "integes");
  const std::string other = prompt(kChatRoute, changed);
  ASSERT_EQ(first.size(), other.size());
  const size_t at =
      static_cast<size_t>(std::mismatch(first.begin(), first.end(), other.begin()).first - first.begin());
  EXPECT_EQ(first.substr(at, 1), "r");
  EXPECT_GT(at, 50u);
}

TEST_F(ToolCallTest, ResultsOfLaterTurnsAreRendered) {
  const std::string shown = prompt(
      kChatRoute,
      kOpenAiTools +
          R"(,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[
      {"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 1}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"1"}])");
  EXPECT_NE(shown.find("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"),
            std::string::npos)
      << shown;
  EXPECT_NE(shown.find("tool\n1"), std::string::npos);
}

TEST_F(ToolCallTest, WhatATemplateDoesNotShowBecomesText) {
  const chat::ChatTemplate plain = *chat::ChatTemplate::parse(chatml());
  rig_.models[0].chat_template = &plain;
  rig_.models[0].format =
      std::make_shared<chat::ModelFormat>(*chat::make_model_format(plain, *rig_.models[0].tokenizer));
  const std::string shown = prompt(
      kChatRoute,
      kOpenAiTools +
          R"(,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"ok","tool_calls":[
      {"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool","tool_call_id":"c2","content":"2"}])");
  EXPECT_TRUE(shown.starts_with("{<|im_start|>}system\n# Tools")) << shown;
  EXPECT_NE(shown.find(R"({"name":"add","description":"","parameters":)"), std::string::npos) << shown;
  EXPECT_NE(
      shown.find("assistant\nok\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>"),
      std::string::npos)
      << shown;
  EXPECT_NE(shown.find("user\n<tool_response>\n1\n</tool_response>\n\n<tool_response>\n2\n</tool_response>"),
            std::string::npos)
      << shown;
}

TEST_F(ToolCallTest, WhatCannotBeKeptIsRefusedByName) {
  const auto refused = [&](std::string_view path, const std::string& fields) {
    return rig_.refusal(path, "{" + fields + "," + kHi + "}");
  };
  EXPECT_EQ(
      refused(kChatRoute, R"("tool_choice":{"type":"function","function":{"name":"sub"}},)" + kOpenAiTools),
      "400 invalid_value tool_choice: 'tool_choice' names 'sub', which is not in 'tools'");
  EXPECT_EQ(
      refused(
          kChatRoute,
          R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}])"),
      "400 invalid_value tools: 'strict' of the tool 'f': `uniqueItems` at #/properties/a cannot be enforced "
      "while the answer is generated, which `strict` asks for");
  EXPECT_EQ(
      refused(
          kChatRoute,
          R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"),
      "400 invalid_value tools: 'tools[1].function.name' is 'f', which another tool has");
  EXPECT_EQ(refused(kChatRoute, R"("tools":[{"type":"web_search"},{"type":"custom","custom":{"name":"x"}}])"),
            "accepted");
}

TEST_F(ToolCallTest, AnthropicHasBlocks) {
  const std::string fields =
      R"("max_tokens":500,"tools":[{"name":"add","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}],)" +
      kHi;
  const json::value whole = json::parse(answer(kMessagesRoute, fields, kAnswer, 7));
  EXPECT_EQ(whole.at("stop_reason"), "tool_use");
  const json::array& content = whole.at("content").as_array();
  ASSERT_EQ(content.size(), 4u);
  EXPECT_EQ(content[0], (json::value{{"type", "thinking"}, {"thinking", "hm é"}, {"signature", ""}}));
  EXPECT_EQ(content[1], (json::value{{"type", "text"}, {"text", "So:"}}));
  EXPECT_EQ(content[3].at("input"), (json::value{{"a", 2}}));
  std::map<int64_t, std::string> blocks;
  std::string stop;
  for (const json::object& event :
       events_of(answer(kMessagesRoute, R"("stream":true,)" + fields, kAnswer, 4))) {
    const auto type = event.at("type").as_string();
    if (type == "content_block_start")
      blocks[event.at("index").as_int64()] = event.at("content_block").at("type").as_string();
    if (type == "message_delta") stop = event.at("delta").at("stop_reason").as_string();
    if (type != "content_block_delta") continue;
    const json::object& delta = event.at("delta").as_object();
    for (const char* key : {"text", "thinking", "partial_json"})
      if (delta.contains(key))
        blocks[event.at("index").as_int64()] += "|" + std::string(delta.at(key).as_string());
  }
  EXPECT_EQ(stop, "tool_use");
  ASSERT_EQ(blocks.size(), 4u);
  const auto joined = [](std::string text) {
    std::erase(text, '|');
    return text;
  };
  EXPECT_EQ(joined(blocks[0]), "thinkinghm é");
  EXPECT_EQ(joined(blocks[1]), "textSo:");
  EXPECT_EQ(joined(blocks[2]), R"(tool_use{"a": 1})");
  EXPECT_EQ(joined(blocks[3]), R"(tool_use{"a": 2})");
}

TEST_F(ToolCallTest, OllamaHasThinkingAndCalls) {
  const json::value whole =
      json::parse(answer(kOllamaRoute, R"("stream":false,)" + kOpenAiTools + "," + kHi, kAnswer, 7));
  const json::object& message = whole.at("message").as_object();
  EXPECT_EQ(message.at("content"), "So:");
  EXPECT_EQ(message.at("thinking"), "hm é");
  EXPECT_EQ(message.at("tool_calls").at(1).at("function"),
            (json::value{{"name", "add"}, {"arguments", {{"a", 2}}}}));
  const std::string stream = answer(kOllamaRoute, kOpenAiTools + "," + kHi, kAnswer, 3);
  EXPECT_NE(stream.find(R"("arguments":{"a":1})"), std::string::npos) << stream;
  EXPECT_EQ(stream.find("<tool_call>"), std::string::npos);
}

TEST_F(ToolCallTest, ResponsesHaveItems) {
  const std::string fields =
      R"("tools":[{"type":"function","name":"add","parameters":{"type":"object"}},{"type":"web_search"}],"input":"Hi")";
  const json::value whole = json::parse(answer(kResponsesRoute, fields, kAnswer, 7));
  const json::array& output = whole.at("output").as_array();
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0].at("content").at(0).at("text"), "hm é");
  EXPECT_EQ(output[1].at("content").at(0).at("text"), "So:");
  EXPECT_EQ(output[2].at("type"), "function_call");
  EXPECT_EQ(output[3].at("arguments"), R"({"a": 2})");
  json::value completed;
  std::string arguments;
  for (const json::object& event :
       events_of(answer(kResponsesRoute, R"("stream":true,)" + fields, kAnswer, 3))) {
    if (event.at("type") == "response.completed") completed = event.at("response");
    if (event.at("type") == "response.function_call_arguments.delta")
      arguments += event.at("delta").as_string();
  }
  EXPECT_EQ(arguments, R"({"a": 1}{"a": 2})");
  EXPECT_EQ(completed.at("output"), whole.at("output"));
  const std::string shown = prompt(
      kResponsesRoute,
      R"("input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c1","name":"add","arguments":"{\"a\":1}"},
         {"type":"function_call","call_id":"c2","name":"add","arguments":"{\"a\":2}"},
         {"type":"function_call_output","call_id":"c1","output":"1"}])");
  EXPECT_NE(
      shown.find(
          "assistant\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call><tool_call>"),
      std::string::npos)
      << shown;
}

}  // namespace
}  // namespace sluice::api
