// /v1/responses, whole and as events.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses";

class ResponseTest : public testing::Test {
 protected:
  std::string prompt(std::string_view fields) {
    return rig_.shown(rig_.submission(kResponsesPath, "{" + std::string(fields) + "}").request.prompt);
  }
  static json::value parsed(const std::string& text) { return *parse_json(text, "answer"); }

  // The events of a stream: name and data.
  static std::vector<std::pair<std::string, json::object>> events(const std::string& stream) {
    std::vector<std::pair<std::string, json::object>> out;
    for (size_t at = 0; at < stream.size();) {
      const size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
      EXPECT_EQ(stream.substr(at, 7), "event: ");
      EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
      out.emplace_back(stream.substr(at + 7, line - at - 7),
                       parsed(stream.substr(line + 7, end - line - 7)).as_object());
      at = end + 2;
    }
    return out;
  }

  Rig rig_;
  const std::string start_ = "{<|im_start|>}", end_ = "{<|im_end|>}\n";
  const Events ok_{{0, delta("o")}, {0, delta("k")}, {0, choice_end()}, {0, finished(5, 1, 2)}};
};

TEST_F(ResponseTest, RendersInput) {
  EXPECT_EQ(prompt(R"("input":"Hi")"), start_ + "user\nHi" + end_ + start_ + "assistant\n");
  EXPECT_EQ(
      prompt(R"("instructions":"Be","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
                      {"type":"reasoning","summary":[]},
                      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes"}]},
                      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
                      {"type":"function_call_output","call_id":"c","output":"42"}])"),
      start_ + "system\nBe" + end_ + start_ + "user\nHi" + end_ + start_ + "assistant\nYes" + end_ + start_ +
          "tool\n42" + end_ + start_ + "assistant\n");
}

TEST_F(ResponseTest, Refuses) {
  const auto refused = [&](std::string_view fields) {
    return rig_.refusal(kResponsesPath, R"({"input":"x",)" + std::string(fields) + "}");
  };
  EXPECT_EQ(refused(R"("previous_response_id":"resp_1")"),
            "400 unsupported_parameter previous_response_id: 'previous_response_id' is not supported: "
            "answers are not "
            "stored; send the conversation as input");
  for (const char* type : {"web_search", "custom", "namespace"})
    EXPECT_EQ(refused(R"("tools":[{"type":")" + std::string(type) + R"("}])"), "accepted");
  EXPECT_EQ(refused(R"("text":{"format":{"type":"json_schema"}})"),
            "400 invalid_value text.format: 'schema' is missing");
  EXPECT_EQ(refused(R"("n":2)"),
            "400 unsupported_parameter n: 'n' is not supported: a response has one answer");
  EXPECT_EQ(refused(R"("background":true)"),
            "400 unsupported_parameter background: 'background' is not supported: answers are sent at once");
  for (const char* fields :
       {R"("background":false)", R"("store":true,"include":["reasoning.encrypted_content"])",
        R"("tool_choice":"auto","parallel_tool_calls":true,"text":{"verbosity":"low"})"})
    EXPECT_EQ(refused(fields), "accepted") << fields;
  EXPECT_EQ(rig_.refusal(kResponsesPath, R"({"input":5})"),
            "400 invalid_value input: 'input' must be a string or a list of items");
  EXPECT_EQ(
      rig_.refusal(kResponsesPath, R"({"input":[{"type":"item_reference","id":"x"}]})"),
      "400 unsupported_parameter input: 'input[0]' is of type 'item_reference', which is not supported");
  EXPECT_EQ(rig_.refusal(kResponsesPath, R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
            "400 invalid_value input: 'input[0].content[0]' has the address ''; it must begin with data:, "
            "http: or https:");
}

TEST_F(ResponseTest, WholeAnswer) {
  const std::string text = rig_.answer(
      kResponsesPath,
      R"({"input":"x","instructions":"Be","metadata":{"a":"b"},"temperature":0.5,"max_output_tokens":2})",
      ok_);
  EXPECT_EQ(
      text,
      R"({"id":"resp_r1","object":"response","created_at":1700000000,"status":"completed","background":false,)"
      R"("error":null,"incomplete_details":null,"instructions":"Be","max_output_tokens":2,"model":"tiny","output":[)"
      R"({"id":"msg_r1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text",)"
      R"("annotations":[],"logprobs":[],"text":"ok"}]}],"parallel_tool_calls":true,"previous_response_id":null,)"
      R"("reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,"temperature":0.5,)"
      R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,)"
      R"("truncation":"disabled","usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":1},)"
      R"("output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7},"user":null,)"
      R"("metadata":{"a":"b"}})");
}

TEST_F(ResponseTest, AnswerThatReachedItsLength) {
  const std::string text =
      rig_.answer(kResponsesPath, R"({"input":"x"})",
                  {{0, delta("o")}, {0, choice_end(engine::FinishReason::Length)}, {0, finished(5, 1, 2)}});
  EXPECT_NE(text.find(R"("status":"incomplete","background")"), std::string::npos);
  EXPECT_NE(text.find(R"("incomplete_details":{"reason":"max_output_tokens"})"), std::string::npos);
}

TEST_F(ResponseTest, Stream) {
  const auto all = events(rig_.answer(
      kResponsesPath,
      R"({"input":"x","stream":true,"top_logprobs":1,"include":["message.output_text.logprobs"]})", ok_));
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i) {
    names.push_back(all[i].first);
    EXPECT_EQ(all[i].second.at("type"), json::value(all[i].first));
    EXPECT_EQ(all[i].second.at("sequence_number"), json::value(i));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"response.created", "response.in_progress",
                                             "response.output_item.added", "response.content_part.added",
                                             "response.output_text.delta", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
  EXPECT_EQ(all[0].second.at("response").at("status"), "in_progress");
  EXPECT_EQ(all[2].second.at("item").at("content"), json::array());
  EXPECT_EQ(all[4].second.at("delta"), "o");
  EXPECT_EQ(all[4].second.at("item_id"), "msg_r1");
  EXPECT_EQ(all[4].second.at("logprobs").as_array().size(), 1u);
  EXPECT_EQ(all[6].second.at("text"), "ok");
  EXPECT_EQ(all[8].second.at("item").at("content").at(0).at("text"), "ok");
  EXPECT_EQ(all[9].second.at("response").at("output").at(0).at("content").at(0).at("text"), "ok");
  EXPECT_EQ(all[9].second.at("response").at("usage").at("total_tokens"), 7);
}

TEST_F(ResponseTest, FailedStream) {
  const auto all = events(rig_.answer(kResponsesPath, R"({"input":"x","stream":true})",
                                      {{0, delta("o")}, {0, failed(ErrorCode::Unavailable, "busy")}}));
  EXPECT_EQ(all.back().first, "response.failed");
  EXPECT_EQ(all.back().second.at("response").at("error"),
            (json::value{{"code", "server_is_overloaded"}, {"message", "busy"}}));
}

TEST_F(ResponseTest, CountsInputTokens) {
  const Reply reply = rig_.post("/v1/responses/input_tokens", R"({"input":"Hi"})");
  EXPECT_EQ(std::get<Answer>(reply).body, R"({"object":"response.input_tokens","input_tokens":21})");
}

}  // namespace
}  // namespace sluice::api
