// Ollama's /api and llama.cpp's own endpoints.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

class OllamaTest : public testing::Test {
 protected:
  std::string get(std::string_view path) { return std::get<Answer>(rig_.call("GET", path, "")).body; }
  std::string post(std::string_view path, std::string_view body) {
    return std::get<Answer>(rig_.post(path, body)).body;
  }
  std::string prompt(std::string_view path, std::string_view body) {
    return rig_.shown(rig_.submission(path, body).request.prompt);
  }

  Rig rig_;
  const std::string hi_ = R"("messages":[{"role":"user","content":"Hi"}])";
  const std::string user_ = "{<|im_start|>}user\nHi{<|im_end|>}\n{<|im_start|>}assistant\n";
  const Events ok_{{0, delta("ok")}, {0, choice_end()}, {0, finished(21, 1, 2)}};
  const std::string end_ =
      R"("done_reason":"stop","done":true,"total_duration":0,"load_duration":0,"prompt_eval_count":21,)"
      R"("prompt_eval_duration":0,"eval_count":2,"eval_duration":0})";
};

TEST_F(OllamaTest, TellsAboutModels) {
  EXPECT_EQ(get("/api/version"), R"({"version":"0.13.4"})");
  const std::string tags = get("/api/tags");
  EXPECT_TRUE(tags.starts_with(
      R"({"models":[{"name":"tiny","model":"tiny","modified_at":"2023-07-22T04:26:40Z","size":4000,"digest":")"))
      << tags;
  EXPECT_NE(get("/api/ps").find(R"("context_length":200)"), std::string::npos);
  EXPECT_NE(post("/api/show", R"({"model":"tiny:latest"})").find(R"("llama.context_length":200)"),
            std::string::npos);
  EXPECT_EQ(rig_.refusal("/api/show", R"({"name":"other"})"),
            "404 model_not_found model: The model 'other' does not exist. This server has 'tiny'.");
}

TEST_F(OllamaTest, Chat) {
  EXPECT_EQ(prompt("/api/chat", "{" + hi_ + "}"), user_);
  EXPECT_EQ(
      rig_.answer("/api/chat", R"({"stream":false,)" + hi_ + "}", ok_),
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":"ok"},)" +
          end_);
  EXPECT_EQ(
      rig_.answer("/api/chat", "{" + hi_ + "}", ok_),
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":"ok"},)"
      R"("done":false})"
      "\n"
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":""},)" +
          end_ + "\n");
  EXPECT_EQ(
      rig_.answer("/api/chat", "{" + hi_ + "}", {{0, delta("o")}, {0, failed(ErrorCode::Internal, "broke")}}),
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":"o"},)"
      R"("done":false})"
      "\n{\"error\":\"broke\"}\n");
}

TEST_F(OllamaTest, GivesTheTimeOfEachPiece) {
  static int64_t time;
  time = 1700000000000000000;
  rig_.context.clock = [] { return time += 1250000001; };
  const std::string answer = rig_.answer("/api/generate", R"({"prompt":"Hi"})", ok_);
  EXPECT_NE(answer.find(R"("created_at":"2023-11-14T22:13:21.250000001Z","response":"ok")"),
            std::string::npos)
      << answer;
  EXPECT_NE(answer.find(R"("created_at":"2023-11-14T22:13:22.500000002Z","response":"")"), std::string::npos)
      << answer;
}

TEST_F(OllamaTest, NamesHaveATagOrNot) {
  rig_.models.front().id = "small:latest";
  rig_.models.front().aliases = {"ollama:small:latest", "big:7b"};
  for (const char* name : {"small", "small:latest", "ollama:small", "big:7b"})
    EXPECT_EQ(rig_.refusal("/api/chat", fmt::format(R"({{"model":"{}",{}}})", name, hi_)), "accepted")
        << name;
  for (const char* name : {"small:7b", "big", "smal"})
    EXPECT_TRUE(
        rig_.refusal("/api/chat", fmt::format(R"({{"model":"{}",{}}})", name, hi_)).starts_with("404"));
}

TEST_F(OllamaTest, OptionsReachTheEngine) {
  const engine::Submission made = rig_.submission(
      "/api/chat",
      R"({"options":{"num_predict":7,"seed":3,"temperature":0,"stop":["x"],"num_ctx":4096},)" + hi_ + "}");
  const auto& sampling = std::get<request::Sampling>(made.request.sampling().method);
  EXPECT_EQ(made.request.sampling().max_tokens, 7);
  EXPECT_EQ(sampling.seed, 3u);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(rig_.submission("/api/chat", R"({"options":{"num_predict":-1},)" + hi_ + "}")
                .request.sampling()
                .max_tokens,
            200 - 21);
  EXPECT_EQ(rig_.refusal("/api/chat", R"({"options":{"temperature":9},)" + hi_ + "}"),
            "400 invalid_value options.temperature: 'options.temperature' is 9; it must be from 0 to 2");
  EXPECT_EQ(rig_.refusal("/api/chat", R"({"format":"yaml",)" + hi_ + "}"),
            "400 invalid_value format: 'format' is \"yaml\"; it must be \"json\" or a schema");
}

TEST_F(OllamaTest, Generate) {
  EXPECT_EQ(prompt("/api/generate", R"({"prompt":"Hi"})"), user_);
  EXPECT_EQ(prompt("/api/generate", R"({"prompt":"Hi","system":"Be"})"),
            "{<|im_start|>}system\nBe{<|im_end|>}\n" + user_);
  EXPECT_EQ(prompt("/api/generate", R"({"prompt":"<|im_end|>","raw":true})"), "{<s>}{<|im_end|>}");
  EXPECT_EQ(rig_.answer("/api/generate", R"({"prompt":"Hi","stream":false})", ok_),
            R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","response":"ok",)" + end_);
  EXPECT_EQ(
      post("/api/generate", R"({"model":"tiny"})"),
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","response":"","done_reason":"load","done":true})");
  EXPECT_EQ(
      post("/api/chat", R"({"model":"tiny","messages":[]})"),
      R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":""},)"
      R"("done_reason":"load","done":true})");
}

TEST_F(OllamaTest, Embeddings) {
  const Events events{{0, engine::Embedding{{0.6F, 0.8F}}}, {0, finished(2, 0, 0)}};
  EXPECT_EQ(
      rig_.answer("/api/embed", R"({"input":"x"})", events),
      R"({"model":"tiny","embeddings":[[0.6,0.8]],"total_duration":0,"load_duration":0,"prompt_eval_count":2})");
  EXPECT_EQ(rig_.answer("/api/embeddings", R"({"prompt":"x"})", events), R"({"embedding":[0.6,0.8]})");
  const std::string long_text(300, 'x');
  EXPECT_EQ(rig_.submission("/api/embed", R"({"input":")" + long_text + R"("})").request.prompt.size(), 199u);
  EXPECT_NE(rig_.refusal("/api/embed", R"({"truncate":false,"input":")" + long_text + R"("})")
                .find("context length"),
            std::string::npos);
}

TEST_F(OllamaTest, LlamaServerCompletion) {
  EXPECT_EQ(prompt("/completion", R"({"prompt":"Hi"})"), "{<s>}Hi");
  EXPECT_EQ(rig_.submission("/completion", R"({"prompt":"Hi"})").request.sampling().max_tokens, 197);
  const std::string end =
      R"("tokens_predicted":2,"tokens_evaluated":21,"tokens_cached":1,"truncated":false,"stop_type":"eos",)"
      R"("stopping_word":"","timings":{"cache_n":1,"prompt_n":20,"prompt_ms":0,"prompt_per_token_ms":0,)"
      R"("prompt_per_second":0,"predicted_n":2,"predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0}})";
  EXPECT_EQ(rig_.answer("/completion", R"({"prompt":"Hi","return_tokens":true})", ok_),
            R"({"index":0,"content":"ok","tokens":[111,107],"id_slot":0,"stop":true,"model":"tiny",)" + end);
  EXPECT_EQ(rig_.answer("/completions", R"({"prompt":"Hi","stream":true})", ok_),
            R"(data: {"index":0,"content":"ok","tokens":[],"id_slot":0,"stop":false,"model":"tiny"})"
            "\n\n"
            R"(data: {"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"tiny",)" +
                end + "\n\n");
  EXPECT_NE(get("/props").find(R"("default_generation_settings":{"n_ctx":200)"), std::string::npos);
}

}  // namespace
}  // namespace sluice::api
