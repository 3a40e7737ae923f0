// What docs/faults.md promises of requests, in every dialect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kChat = R"("messages":[{"role":"user","content":"Hi"}])";

// Operations that generate text, with the member that makes them stream or not.
struct Generator {
  std::string_view path, members;
};
constexpr Generator kGenerators[] = {
    {"/v1/chat/completions", kChat},
    {"/v1/completions", R"("prompt":"Hi")"},
    {"/v1/responses", R"("input":"Hi")"},
    {"/v1/messages", R"("max_tokens":5,"messages":[{"role":"user","content":"Hi"}])"},
    {"/api/chat", kChat},
    {"/api/generate", R"("prompt":"Hi")"},
    {"/completion", R"("prompt":"Hi")"},
};

std::string body_of(const Generator& generator, bool stream) {
  return fmt::format("{{{},\"stream\":{}}}", generator.members, stream);
}

class FaultTest : public testing::Test {
 protected:
  Rig rig_;
};

TEST_F(FaultTest, NumbersThatAreNoneHaveTheirOwnCode) {
  const std::string message = "the logit of token 7 is nan";
  const engine::Finished nan = failed(ErrorCode::Numerical, message);
  for (const Generator& generator : kGenerators) {
    const std::string refused = "error: 500 numerical_error " + message;
    EXPECT_EQ(rig_.answer(generator.path, body_of(generator, false), {{0, delta("o")}, {0, nan}}), refused);
    EXPECT_EQ(rig_.answer(generator.path, body_of(generator, true), {{0, nan}}), refused);
    const std::string streamed =
        rig_.answer(generator.path, body_of(generator, true), {{0, delta("o")}, {0, nan}});
    const bool has_code = !generator.path.starts_with("/api/") && generator.path != "/v1/messages";
    EXPECT_NE(streamed.find(message), std::string::npos) << generator.path;
    EXPECT_EQ(streamed.find("numerical_error") != std::string::npos, has_code) << streamed;
    EXPECT_NE(streamed.find("error"), std::string::npos) << streamed;
    EXPECT_EQ(streamed.find("finish_reason\":\"stop"), std::string::npos) << "it must not look complete";
    EXPECT_EQ(streamed.find("\"done\":true"), std::string::npos) << streamed;
    EXPECT_EQ(streamed.find("message_stop"), std::string::npos) << streamed;
    EXPECT_EQ(streamed.find("response.completed"), std::string::npos) << streamed;
  }
  for (const char* path : {"/v1/embeddings", "/api/embed"})
    EXPECT_EQ(rig_.answer(path, R"({"input":"Hi"})", {{0, nan}}), "error: 500 numerical_error " + message);
}

TEST_F(FaultTest, ConstraintsThatLeaveNothingAreTheRequestsFault) {
  EXPECT_EQ(rig_.answer("/v1/completions", R"({"prompt":"Hi"})",
                        {{0, failed(ErrorCode::InvalidArgument, "no token is left")}}),
            "error: 400 invalid_value no token is left");
}

TEST_F(FaultTest, WhatWaitedTooLongIsAskedToComeAgain) {
  for (const Generator& generator : kGenerators) {
    engine::Finished late = failed(ErrorCode::Unavailable, "it waited");
    late.reason = engine::FinishReason::Expired;
    EXPECT_EQ(rig_.answer(generator.path, body_of(generator, true), {{0, late}}),
              "error: 503 server_is_overloaded it waited");
  }
}

// The longest token, "<|im_start|>", has 12 bytes: 2,412 bytes are at least 201 tokens, and really 2,413.
TEST_F(FaultTest, TextsThatCannotFitAreNotCounted) {
  const auto completion = [&](size_t bytes, std::string_view fields = "") {
    return rig_.refusal("/v1/completions",
                        fmt::format("{{\"prompt\":\"{}\"{}}}", std::string(bytes, 'x'), fields));
  };
  const std::string words =
      "400 context_length_exceeded -: This model's maximum context length is 200 tokens. However, you "
      "requested "
      "{} tokens ({} in the messages, {} in the completion). Please reduce the length of the messages or "
      "completion.";
  EXPECT_EQ(completion(2411), fmt::format(fmt::runtime(words), 2428, 2412, 16)) << "it might fit: counted";
  EXPECT_EQ(completion(2412, R"(,"max_tokens":7)"),
            fmt::format(fmt::runtime(words), 208, 201, 7) + " (the prompt was not counted to its end)");
  EXPECT_EQ(completion(100'000, R"(,"truncate_prompt_tokens":5)"), "accepted");
  const std::string chat = R"("messages":[{"role":"user","content":")" + std::string(3000, 'x') + R"("}])";
  for (const char* path : {"/v1/chat/completions", "/api/chat"})
    EXPECT_TRUE(rig_.refusal(path, "{" + chat + "}").ends_with("not counted to its end)")) << path;
  EXPECT_EQ(rig_.refusal("/v1/messages", R"({"max_tokens":5,)" + chat + "}"),
            "400 context_length_exceeded -: prompt is too long: 253 tokens > 200 maximum (the prompt was not "
            "counted to its end)");
  EXPECT_TRUE(rig_.refusal("/v1/embeddings", "{\"input\":\"" + std::string(3000, 'x') + "\"}")
                  .ends_with("not counted to its end)"));
  EXPECT_EQ(rig_.refusal("/v1/messages/count_tokens", "{" + chat + "}"), "accepted")
      << "counting is what it is for";
  EXPECT_EQ(rig_.refusal("/tokenize", "{" + chat + "}"), "accepted");
}

// Over the limit of what a template may write, which is an error of its own for shorter conversations.
TEST_F(FaultTest, AConversationThatNoTemplateRendersIsTooLong) {
  const std::string chat =
      R"({"messages":[{"role":"user","content":")" + std::string(size_t{9} << 20, 'x') + R"("}]})";
  EXPECT_TRUE(rig_.refusal("/v1/chat/completions", chat).starts_with("400 context_length_exceeded"));
}

TEST_F(FaultTest, AnswersAreNoLongerThanTheServerAllows) {
  rig_.models[0].max_output = 50;
  const auto tokens = [&](std::string_view path, std::string_view body) {
    return rig_.submission(path, body).request.sampling().max_tokens;
  };
  EXPECT_EQ(
      tokens("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"ignore_eos":true})"),
      50);
  EXPECT_EQ(tokens("/v1/completions", R"({"prompt":"Hi","max_tokens":100})"), 50);
  EXPECT_EQ(tokens("/v1/completions", R"({"prompt":"Hi"})"), 16);
  EXPECT_EQ(tokens("/v1/messages", R"({"max_tokens":100,"messages":[{"role":"user","content":"Hi"}]})"), 50);
  EXPECT_EQ(rig_.refusal("/v1/completions", R"({"prompt":"Hi","max_tokens":90,"min_tokens":80})"),
            "400 invalid_value min_tokens: min_tokens is 80; it must not be over max_tokens, which is 50");
}

// Whether a file exists is not told by asking for it as a model.
TEST_F(FaultTest, NamesAreNotPaths) {
  const auto refused = [&](const std::string& name) {
    return rig_.refusal("/v1/completions", fmt::format(R"({{"model":"{}","prompt":"x"}})", name));
  };
  for (const std::string name : {"/etc/passwd", "../../etc/passwd", "/no/such/file", "hf:org/name", "a"})
    EXPECT_EQ(refused(name),
              fmt::format("404 model_not_found model: The model '{}' does not exist. This server has "
                          "'tiny'.",
                          name));
}

// An error names the field as the client wrote it, in whichever dialect.
TEST(FieldNames, AreTheClients) {
  Rig rig;
  const std::string chat = R"("messages":[{"role":"user","content":"Hi"}])";
  const std::string stops = R"(["","a"])";
  const struct {
    std::string path, body, param;
  } cases[] = {
      {"/v1/completions", R"({"prompt":[9999]})", "prompt"},
      {"/v1/completions", R"({"prompt":"x","stop_token_ids":[9999]})", "stop_token_ids"},
      {"/v1/completions", R"({"prompt":"x","allowed_token_ids":[]})", "allowed_token_ids"},
      {"/v1/completions", R"({"prompt":"x","max_tokens":4,"min_tokens":5})", "min_tokens"},
      {"/v1/completions", R"({"prompt":"x","contrastive_decoding":{"alpha":0}})",
       "contrastive_decoding.alpha"},
      {"/v1/embeddings", R"({"input":[9999]})", "input"},
      {"/v1/embeddings", R"({"input":[[]]})", "input"},
      {"/api/embed", R"({"input":[[9999]]})", "input"},
      {"/api/embeddings", R"({"prompt":7})", "prompt"},
      {"/v1/chat/completions", R"({"max_tokens":0,)" + chat + "}", "max_tokens"},
      {"/v1/chat/completions", R"({"max_completion_tokens":0,)" + chat + "}", "max_completion_tokens"},
      {"/completion", R"({"prompt":"x","n_predict":0})", "n_predict"},
      {"/v1/chat/completions", R"({"stop":)" + stops + "," + chat + "}", "stop"},
      {"/v1/messages", R"({"max_tokens":4,"stop_sequences":)" + stops + "," + chat + "}", "stop_sequences"},
      {"/api/chat", R"({"options":{"stop":)" + stops + "}," + chat + "}", "options.stop"},
      {"/api/generate", R"({"prompt":"x","options":{"stop":)" + stops + "}}", "options.stop"},
  };
  for (const auto& [path, body, param] : cases) {
    const std::string refusal = rig.refusal(path, body);
    EXPECT_TRUE(refusal.starts_with("400 invalid_value " + param + ":"))
        << path << " " << body << ": " << refusal;
  }
  rig.models.front().chat_template = nullptr;
  EXPECT_TRUE(rig.refusal("/v1/responses", R"({"input":"x"})").starts_with("400 invalid_value input:"));
}

}  // namespace
}  // namespace sluice::api
