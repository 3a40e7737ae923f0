// /v1/chat/completions: the prompt that becomes of a conversation, and the bytes of its answers.
#include <gtest/gtest.h>

#include "chat/chat_prompt.h"
#include "tests/api/byte_model.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kChatPath = "/v1/chat/completions";
constexpr std::string_view kNoTimings =
    R"("timings":{"cache_n":1,"prompt_n":4,"prompt_ms":0,"prompt_per_token_ms":0,"prompt_per_second":0,)"
    R"("predicted_n":3,"predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0})";
constexpr std::string_view kUsage =
    R"("usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":1},)"
    R"("completion_tokens_details":{"reasoning_tokens":0}})";

std::string with(std::string_view fields) {
  return R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}])" + std::string(fields) + "}";
}
std::string messages(std::string_view list, std::string_view fields = "") {
  return R"({"messages":)" + std::string(list) + std::string(fields) + "}";
}

class ChatTest : public testing::Test {
 protected:
  std::string prompt(std::string_view body) {
    return rig_.shown(rig_.submission(kChatPath, body).request.prompt);
  }
  std::string answer(std::string_view fields, const Events& events) {
    return rig_.answer(kChatPath, with(fields), events);
  }

  Rig rig_;
  const Events ok_{{0, delta("o")}, {0, delta("k!")}, {0, choice_end()}, {0, finished(5, 1, 3)}};
};

TEST_F(ChatTest, RendersTheConversation) {
  EXPECT_EQ(prompt(with("")), "{<|im_start|>}user\nHi{<|im_end|>}\n{<|im_start|>}assistant\n");
  EXPECT_EQ(prompt(messages(
                R"([{"role":"developer","content":"Be"},{"role":"user","content":[{"type":"text","text":"a"},
                              {"type":"text","text":"b"}]}])")),
            "{<|im_start|>}system\nBe{<|im_end|>}\n{<|im_start|>}user\na\nb{<|im_end|>}\n{<|im_start|>}"
            "assistant\n");
  EXPECT_EQ(prompt(with(R"(,"add_generation_prompt":false)")), "{<|im_start|>}user\nHi{<|im_end|>}\n");
  EXPECT_EQ(prompt(messages(R"([{"role":"user","content":"x"},{"role":"assistant","content":"So "}])",
                            R"(,"add_generation_prompt":false,"continue_final_message":true)")),
            "{<|im_start|>}user\nx{<|im_end|>}\n{<|im_start|>}assistant\nSo");
  EXPECT_EQ(prompt(with(R"(,"truncate_prompt_tokens":4)")), "ant\n");
  EXPECT_EQ(prompt(with(R"(,"truncate_prompt_tokens":4,"truncation_side":"right")")), "{<|im_start|>}use");
}

TEST_F(ChatTest, NothingThatAClientWroteBecomesAControlToken) {
  const std::string spelled = "<|im_end|>";
  EXPECT_EQ(prompt(messages(R"([{"role":"user","content":"<|im_end|>"}])")),
            "{<|im_start|>}user\n" + spelled + "{<|im_end|>}\n{<|im_start|>}assistant\n");
  EXPECT_EQ(prompt(with(R"(,"chat_template_kwargs":{"style":"<|im_end|>"})")),
            "{<|im_start|>}user\nHi{<|im_end|>}\n[" + spelled + "]{<|im_start|>}assistant\n");
}

TEST_F(ChatTest, SubmissionCarriesWhoAsks) {
  rig_.context.cache_salt = "key7";
  const engine::Submission made =
      rig_.submission(kChatPath, with(R"(,"priority":5,"cache_salt":"abc","request_id":"mine")"));
  EXPECT_EQ(made.request.client, "me");
  EXPECT_EQ(made.request.priority, -5);
  EXPECT_EQ(made.request.cache_salt,
            "key7\x1f"
            "abc");
  EXPECT_EQ(made.request.sampling().max_tokens, 200 - 21);
  EXPECT_TRUE(made.text != nullptr);
}

TEST_F(ChatTest, WholeAnswer) {
  EXPECT_EQ(
      answer("", ok_),
      R"({"id":"chatcmpl-r1","object":"chat.completion","created":1700000000,"model":"tiny","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"ok!","refusal":null},"logprobs":null,"finish_reason":"stop",)"
      R"("stop_reason":null}],)" +
          std::string(kUsage) + R"(,"system_fingerprint":"sluice-0.1.0","service_tier":null,)" +
          std::string(kNoTimings) + "}");
}

TEST_F(ChatTest, WholeAnswerWithLogprobsIdsAndStopReason) {
  engine::ChoiceEnd end = choice_end(engine::FinishReason::Stop);
  end.stop_string = "END";
  const std::string text =
      answer(R"(,"logprobs":true,"top_logprobs":2,"return_token_ids":true,"request_id":"x.1")",
             {{0, delta("o")}, {0, end}, {0, finished(5, 0, 1)}});
  EXPECT_NE(
      text.find(R"("logprobs":{"content":[{"token":"o","logprob":-0.5,"bytes":[111],"top_logprobs":[)"
                R"({"token":"o","logprob":-0.5,"bytes":[111]},{"token":"z","logprob":-2,"bytes":[122]}]}],)"
                R"("refusal":null},"finish_reason":"stop","stop_reason":"END","token_ids":[111])"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("id":"chatcmpl-x.1")"), std::string::npos);
  EXPECT_NE(text.find(R"("prompt_token_ids":[256,117,)"), std::string::npos);
}

std::string chunk(std::string_view choices, std::string_view extra = "") {
  return R"(data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":1700000000,"model":"tiny",)"
         R"("system_fingerprint":"sluice-0.1.0","choices":[)" +
         std::string(choices) + "]" + std::string(extra) + "}\n\n";
}
std::string piece(int index, std::string_view text, std::string_view extra = "") {
  return chunk(R"({"index":)" + std::to_string(index) + R"(,"delta":{"content":")" + std::string(text) +
                   R"("},"logprobs":null,"finish_reason":null})",
               extra);
}
std::string role(int index, std::string_view extra = "") {
  return chunk(R"({"index":)" + std::to_string(index) +
                   R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})",
               extra);
}
std::string last(int index, std::string_view reason, std::string_view extra = "") {
  return chunk(R"({"index":)" + std::to_string(index) + R"(,"delta":{},"logprobs":null,"finish_reason":")" +
                   std::string(reason) + R"(","stop_reason":null})",
               extra);
}

TEST_F(ChatTest, Stream) {
  const std::string timings = "," + std::string(kNoTimings);
  EXPECT_EQ(answer(R"(,"stream":true)", ok_),
            role(0) + piece(0, "o") + piece(0, "k!") + last(0, "stop", timings) + "data: [DONE]\n\n");
}

TEST_F(ChatTest, StreamWithUsage) {
  const std::string none = R"(,"usage":null)";
  EXPECT_EQ(answer(R"(,"stream":true,"stream_options":{"include_usage":true})", ok_),
            role(0, none) + piece(0, "o", none) + piece(0, "k!", none) + last(0, "stop", none) +
                chunk("", "," + std::string(kNoTimings) + "," + std::string(kUsage)) + "data: [DONE]\n\n");
}

TEST_F(ChatTest, StreamsOfSeveralChoicesAreInterleaved) {
  const Events events{{0, delta("a", 1)},
                      {0, delta("b", 0)},
                      {0, choice_end(engine::FinishReason::Length, 1)},
                      {0, delta("c", 0)},
                      {0, choice_end(engine::FinishReason::Stop, 0)},
                      {0, finished(5, 1, 3)}};
  EXPECT_EQ(answer(R"(,"stream":true,"n":2)", events),
            role(1) + piece(1, "a") + role(0) + piece(0, "b") + last(1, "length") + piece(0, "c") +
                last(0, "stop", "," + std::string(kNoTimings)) + "data: [DONE]\n\n");
}

TEST_F(ChatTest, ErrorsBeforeAndAfterTheFirstByte) {
  EXPECT_EQ(answer(R"(,"stream":true)", {{0, failed(ErrorCode::Unavailable, "too much is waiting")}}),
            "error: 503 server_is_overloaded too much is waiting");
  EXPECT_EQ(
      answer(R"(,"stream":true)", {{0, delta("o")}, {0, failed(ErrorCode::Internal, "numbers broke")}}),
      role(0) + piece(0, "o") +
          R"(data: {"error":{"message":"numbers broke","type":"server_error","param":null,"code":"internal_error"}})"
          "\n\ndata: [DONE]\n\n");
  EXPECT_EQ(answer("", {{0, delta("o")}, {0, failed(ErrorCode::Internal, "numbers broke")}}),
            "error: 500 internal_error numbers broke");
  EXPECT_EQ(answer("", {{0, engine::Finished{.reason = engine::FinishReason::Expired}}}),
            "error: 408 request_timeout The request was not complete within its time limit.");
}

TEST_F(ChatTest, TheServerCanEndAStream) {
  Reply reply = rig_.post(kChatPath, with(R"(,"stream":true)"));
  AnswerWriter& writer = *std::get<EngineJob>(reply).writer;
  std::string out;
  writer.head_sent();
  writer.fail({.status = 503, .type = "server_error", .code = "shutdown", .message = "bye"}, out);
  EXPECT_EQ(
      out,
      "data: "
      "{\"error\":{\"message\":\"bye\",\"type\":\"server_error\",\"param\":null,\"code\":\"shutdown\"}}\n\n"
      "data: [DONE]\n\n");
  EXPECT_TRUE(writer.done());
  EXPECT_EQ(writer.error(), nullptr);
  writer.take(0, finished(5, 0, 1), out);  // what comes late is ignored
  EXPECT_EQ(out.find("chatcmpl"), std::string::npos);
}

TEST_F(ChatTest, EchoStartsWithTheContinuedMessage) {
  const std::string body =
      messages(R"([{"role":"user","content":"x"},{"role":"assistant","content":"So"}])",
               R"(,"add_generation_prompt":false,"continue_final_message":true,"echo":true)");
  EXPECT_NE(rig_.answer(kChatPath, body, ok_).find(R"("content":"Sook!")"), std::string::npos);
}

TEST_F(ChatTest, RefusesMessages) {
  const auto refused = [&](std::string_view list) { return rig_.refusal(kChatPath, messages(list)); };
  EXPECT_EQ(rig_.refusal(kChatPath, "{}"), "400 invalid_value messages: 'messages' is missing");
  EXPECT_EQ(refused("[]"),
            "400 invalid_value messages: 'messages' is empty; it must hold at least 1 message");
  EXPECT_EQ(refused("[7]"), "400 invalid_value messages: 'messages[0]' must be an object");
  EXPECT_EQ(refused(R"([{"role":"<|x|>","content":"a"}])"),
            "400 invalid_value messages: 'messages[0].role' is \"<|x|>\"; it must be one of system, "
            "developer, user, "
            "assistant, tool, "
            "function");
  EXPECT_EQ(refused(R"([{"role":"user","content":5}])"),
            "400 invalid_value messages: 'messages[0].content' must be a string or a list of parts");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}])"),
            "400 invalid_value messages: the model 'tiny' reads text alone; the conversation has 1 pictures");
  EXPECT_EQ(refused(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":
                "data:image/png;base64,AAAA"}},{"type":"text","text":"?"}]}])"),
            "400 invalid_value messages: the model 'tiny' reads text alone; the conversation has 1 pictures");
  EXPECT_EQ(refused(R"([{"role":"system","content":[{"type":"image_url"}]}])"),
            "400 unsupported_parameter messages: 'messages[0].content[0]' is of type 'image_url'; texts are "
            "taken here, and pictures of users");
  EXPECT_EQ(rig_.refusal(kChatPath, with(R"(,"chat_template_kwargs":{"messages":[]})")),
            "400 invalid_value chat_template_kwargs: 'chat_template_kwargs' sets 'messages', which is the "
            "server's own");
  rig_.models[0].chat_template = nullptr;
  EXPECT_EQ(rig_.refusal(kChatPath, with("")),
            "400 invalid_value messages: the model 'tiny' has no chat template; use /v1/completions");
}

TEST_F(ChatTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(
      rig_.refusal(kChatPath, with(R"(,"max_tokens":180)")),
      "400 context_length_exceeded -: This model's maximum context length is 200 tokens. However, you "
      "requested "
      "201 tokens (21 in the messages, 180 in the completion). Please reduce the length of the messages or "
      "completion.");
  EXPECT_EQ(rig_.submission(kChatPath, with(R"(,"max_tokens":179)")).request.sampling().max_tokens, 179);
  const std::string long_text(300, 'x');
  EXPECT_EQ(
      rig_.refusal(kChatPath, messages(R"([{"role":"user","content":")" + long_text + R"("}])")),
      "400 context_length_exceeded -: This model's maximum context length is 200 tokens. However, you "
      "requested "
      "320 tokens (319 in the messages, 1 in the completion). Please reduce the length of the messages or "
      "completion.");
}

TEST_F(ChatTest, ChoosesTheModel) {
  EXPECT_EQ(rig_.refusal(kChatPath, R"({"model":"other","messages":[{"role":"user","content":"x"}]})"),
            "404 model_not_found model: The model 'other' does not exist. This server has 'tiny'.");
  EXPECT_EQ(rig_.refusal(kChatPath, R"({"model":"tiny-alias","messages":[{"role":"user","content":"x"}]})"),
            "accepted");
  rig_.any_model_name = true;
  EXPECT_EQ(rig_.refusal(kChatPath, R"({"model":"other","messages":[{"role":"user","content":"x"}]})"),
            "accepted");
}

TEST(MessageEnds, AreTheControlTokensBehindContents) {
  const tokenizer::Tokenizer tokenizer = make_byte_tokenizer();
  const auto ends = [&](const std::string& source) {
    return chat::message_end_tokens(*chat::ChatTemplate::parse(source), tokenizer);
  };
  EXPECT_EQ(ends(chatml()), std::vector{kTurnEnd});
  EXPECT_EQ(ends("<s>{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}<|im_start|>{% else %}"
                 " <|im_end|>{% endif %}{% endfor %}"),
            (std::vector{kTurnStart, kTurnEnd}));
  EXPECT_EQ(ends("{{ messages[0].content }}: "), std::vector<Token>{});
  EXPECT_EQ(ends("{{ raise_exception('no') }}"), std::vector<Token>{});
}

}  // namespace
}  // namespace sluice::api
