// Anthropic's /v1/messages.
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kMessagesPath = "/v1/messages";

class AnthropicTest : public testing::Test {
 protected:
  std::string prompt(std::string_view fields) {
    return rig_.shown(
        rig_.submission(kMessagesPath, R"({"model":"tiny","max_tokens":5,)" + std::string(fields) + "}")
            .request.prompt);
  }
  std::string refused(std::string_view fields) {
    return rig_.refusal(kMessagesPath, "{" + std::string(fields) + "}");
  }

  Rig rig_;
  const std::string hi_ = R"("messages":[{"role":"user","content":"Hi"}])";
  const std::string start_ = "{<|im_start|>}", end_ = "{<|im_end|>}\n";
};

TEST_F(AnthropicTest, RendersSystemAndBlocks) {
  EXPECT_EQ(prompt(R"("system":"Be",)" + hi_),
            start_ + "system\nBe" + end_ + start_ + "user\nHi" + end_ + start_ + "assistant\n");
  EXPECT_EQ(
      prompt(
          R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc=1"},{"type":"text","text":"Be"}],)" +
          hi_),
      start_ + "system\nBe" + end_ + start_ + "user\nHi" + end_ + start_ + "assistant\n");
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},
                      {"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}])"),
            start_ + "user\na\nb" + end_ + start_ + "assistant\n");
}

TEST_F(AnthropicTest, UnfoldsCallsAndResults) {
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
        {"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"}]}]}])"),
            start_ + "user\nq" + end_ + start_ + "assistant\n" + end_ + start_ + "tool\n42" + end_ + start_ +
                "assistant\n");
}

TEST_F(AnthropicTest, ContinuesALastMessageOfTheAssistant) {
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":"{"}])"),
            start_ + "user\nq" + end_ + start_ + "assistant\n{");
}

TEST_F(AnthropicTest, CutsMaxTokensToWhatFits) {
  const engine::Submission made =
      rig_.submission(kMessagesPath, R"({"max_tokens":100000,"stop_sequences":["x"],"top_k":3,)" + hi_ + "}");
  EXPECT_EQ(made.request.sampling().max_tokens, 200 - 21);
  EXPECT_EQ(std::get<request::Sampling>(made.request.sampling().method).top_k, 3);
}

TEST_F(AnthropicTest, Refuses) {
  EXPECT_EQ(refused(hi_), "400 invalid_value max_tokens: 'max_tokens' is missing");
  EXPECT_EQ(refused(R"("max_tokens":5)"), "400 invalid_value messages: 'messages' is missing");
  EXPECT_EQ(refused(R"("max_tokens":5,"messages":[])"),
            "400 invalid_value messages: 'messages' is empty; it must hold at least 1 message");
  EXPECT_EQ(refused(R"("max_tokens":5,"tools":[{"description":"f"}],)" + hi_),
            "400 invalid_value tools: 'tools[0].name' must be a string of 1 to 256 bytes");
  EXPECT_EQ(
      refused(R"("max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}])"),
      "400 invalid_value messages: 'messages[0].content[0].source.type' is '', must be base64 or url");
  EXPECT_EQ(refused(R"("max_tokens":5,"messages":[{"role":"tool","content":"x"}])"),
            "400 invalid_value messages: 'messages[0].role' must be user, assistant or system");
  EXPECT_EQ(
      refused(R"("max_tokens":5,"messages":[{"role":"user","content":")" + std::string(300, 'x') + R"("}])"),
      "400 context_length_exceeded -: prompt is too long: 319 tokens > 200 maximum");
}

TEST_F(AnthropicTest, WholeAnswer) {
  engine::ChoiceEnd end = choice_end();
  end.stop_string = "S";
  EXPECT_EQ(
      rig_.answer(kMessagesPath, R"({"max_tokens":5,)" + hi_ + "}",
                  {{0, delta("ok")}, {0, end}, {0, finished(9, 4, 2)}}),
      R"({"id":"msg_r1","type":"message","role":"assistant","model":"tiny","content":[{"type":"text","text":"ok"}],)"
      R"("stop_reason":"stop_sequence","stop_sequence":"S","usage":{"input_tokens":5,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":2}})");
}

TEST_F(AnthropicTest, Stream) {
  const std::string body = R"({"max_tokens":5,"stream":true,)" + hi_ + "}";
  const std::string head =
      "event: message_start\n"
      R"(data: {"type":"message_start","message":{"id":"msg_r1","type":"message","role":"assistant","model":"tiny",)"
      R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":21,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}})"
      "\n\nevent: content_block_start\n"
      R"(data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})"
      "\n\nevent: content_block_delta\n"
      R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ok"}})"
      "\n\n";
  EXPECT_EQ(
      rig_.answer(kMessagesPath, body,
                  {{0, delta("ok")}, {0, choice_end(engine::FinishReason::Length)}, {0, finished(21, 4, 2)}}),
      head +
          "event: content_block_stop\n"
          R"(data: {"type":"content_block_stop","index":0})"
          "\n\nevent: message_delta\n"
          R"(data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},)"
          R"("usage":{"input_tokens":17,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
          R"("output_tokens":2}})"
          "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  EXPECT_EQ(
      rig_.answer(kMessagesPath, body, {{0, delta("ok")}, {0, failed(ErrorCode::Unavailable, "busy")}}),
      head +
          "event: error\n"
          R"(data: {"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r1"})"
          "\n\n");
}

TEST_F(AnthropicTest, CountsTokens) {
  const Reply reply = rig_.post("/v1/messages/count_tokens", "{" + hi_ + R"(,"tools":[]})");
  EXPECT_EQ(std::get<Answer>(reply).body, R"({"input_tokens":21})");
}

TEST_F(AnthropicTest, WritesErrors) {
  const ApiError error{
      .status = 503, .type = "server_error", .code = "server_is_overloaded", .message = "busy"};
  EXPECT_EQ(status_of(Dialect::Anthropic, error), 529);
  EXPECT_EQ(status_of(Dialect::OpenAi, error), 503);
  EXPECT_EQ(write_error(Dialect::Anthropic, {.status = 404, .message = "no"}, "r9"),
            R"({"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"r9"})");
  EXPECT_EQ(write_error(Dialect::Ollama, error, "r9"), R"({"error":"busy"})");
}

}  // namespace
}  // namespace sluice::api
