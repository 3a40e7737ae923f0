// Models, tokens, embeddings, and the documents that are made from the tables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/fields/checklist.h"
#include "base/json.h"
#include "tests/api/rig.h"

namespace sluice::api {
namespace {

class ToolTest : public testing::Test {
 protected:
  std::string post(std::string_view path, std::string_view body) {
    Reply reply = rig_.post(path, body);
    const auto* error = std::get_if<ApiError>(&reply);
    return error == nullptr ? std::get<Answer>(reply).body : "error: " + error->message;
  }
  Rig rig_;
};

TEST_F(ToolTest, Models) {
  const std::string gpu =
      R"({"id":"tiny","object":"model","created":1690000000,"owned_by":"sluice","root":"tiny","parent":null,)"
      R"("max_model_len":200,"meta":{"n_ctx_train":200,"n_vocab":259,"n_params":1000,"size":4000,)"
      R"("architecture":"llama","quantization":"F32","sampling":{}}})";
  EXPECT_EQ(std::get<Answer>(rig_.call("GET", "/v1/models", "")).body,
            R"({"object":"list","data":[)" + gpu + "]}");
  EXPECT_EQ(std::get<Answer>(rig_.call("GET", "/v1/models/{model}", "", "tiny-alias")).body, gpu);
  EXPECT_EQ(std::get<ApiError>(rig_.call("GET", "/v1/models/{model}", "", "none")).status, 404);
}

TEST_F(ToolTest, Tokenize) {
  EXPECT_EQ(post("/tokenize", R"({"prompt":"Hi","return_token_strs":true})"),
            R"({"count":3,"max_model_len":200,"tokens":[258,72,105],"token_strs":["<s>","H","i"]})");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"<s>","add_special_tokens":false})"),
            R"({"count":3,"max_model_len":200,"tokens":[60,115,62],"token_strs":null})");
  EXPECT_EQ(
      post("/tokenize", R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})"),
      R"({"count":9,"max_model_len":200,"tokens":[256,117,115,101,114,10,97,257,10],"token_strs":null})");
  EXPECT_EQ(post("/tokenize", R"({"content":"Hi"})"), R"({"tokens":[72,105]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"<s>","parse_special":true,"add_special":true})"),
            R"({"tokens":[258,258]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"é!","with_pieces":true})"),
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]},{"id":33,"piece":"!"}]})");
  EXPECT_EQ(post("/tokenize", "{}"), "error: 'prompt', 'messages' or 'content' is missing");
}

TEST_F(ToolTest, Detokenize) {
  EXPECT_EQ(post("/detokenize", R"({"tokens":[258,72,105]})"), R"({"prompt":"<s>Hi","content":"<s>Hi"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[258,72],"skip_special_tokens":true})"),
            R"({"prompt":"H","content":"H"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[259]})"),
            "error: 'tokens' holds 259; the vocabulary ends at 258");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[-1]})"),
            "error: 'tokens' is a list; it must be a list of token ids, integers of at least 0");
}

TEST_F(ToolTest, ApplyTemplate) {
  EXPECT_EQ(post("/apply-template", R"({"messages":[{"role":"user","content":"a"}]})"),
            R"({"prompt":"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"})");
}

TEST_F(ToolTest, Embeddings) {
  const Events events{{0, engine::Embedding{{0.6F, 0.8F}}},
                      {1, engine::Embedding{{1.0F, 0.0F}}},
                      {0, finished(2, 0, 0)},
                      {1, finished(3, 0, 0)}};
  EXPECT_EQ(rig_.answer("/v1/embeddings", R"({"input":["x","yz"],"encoding_format":"float"})", events),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6,0.8]},)"
            R"({"object":"embedding","index":1,"embedding":[1,0]}],"model":"tiny",)"
            R"("usage":{"prompt_tokens":5,"total_tokens":5}})");
  EXPECT_NE(rig_.answer("/v1/embeddings", R"({"input":["x","yz"],"encoding_format":"base64"})", events)
                .find(R"("index":1,"embedding":"AACAPwAAAAA="})"),
            std::string::npos);
  EXPECT_NE(rig_.answer("/v1/embeddings", R"({"input":["x","yz"],"dimensions":1})", events)
                .find(R"("index":0,"embedding":[1]})"),
            std::string::npos);
  const engine::Submission made = rig_.submission("/v1/embeddings", R"({"input":[72,105],"pooling":"last"})");
  ASSERT_NE(made.request.pooling(), nullptr);
  EXPECT_EQ(made.request.pooling()->of, request::Pooling::Of::Last);
  EXPECT_EQ(rig_.shown(made.request.prompt), "Hi");
  EXPECT_EQ(rig_.refusal("/v1/embeddings", R"({"input":"x","encoding_format":"hex"})"),
            "400 invalid_value encoding_format: 'encoding_format' is 'hex'; it must be one of float, base64");
  rig_.models[0].embedding = 8;
  EXPECT_EQ(rig_.refusal("/v1/embeddings", R"({"input":"x","dimensions":9})"),
            "400 invalid_value dimensions: 'dimensions' is 9; the model has 8");
}

TEST_F(ToolTest, OpenApiHasEveryOperationAndItsFields) {
  const json::object document = openapi();
  for (const Operation& operation : operations()) {
    const json::object& path = document.at("paths").at(operation.path).as_object();
    EXPECT_TRUE(path.contains(operation.method == "GET" ? "get" : "post")) << operation.path;
  }
  const json::value& properties =
      document.at("components").at("schemas").at("ChatCompletionRequest").at("properties");
  EXPECT_EQ(properties.at("temperature"),
            (json::value{{"type", "number"},
                         {"minimum", 0},
                         {"maximum", 2},
                         {"description", "0: always the likeliest token (default: the model's)"}}));
  EXPECT_TRUE(properties.as_object().contains("tools"));
  EXPECT_FALSE(properties.as_object().contains("audio"));
  EXPECT_EQ(document.at("components").at("schemas").at("ChatCompletionRequest").at("required"),
            json::array{"messages"});
}

// SLUICE_UPDATE_DOCS=1 writes the lists instead of comparing them.
TEST_F(ToolTest, DocumentationListsTheFields) {
  constexpr std::string_view kMark = "<!-- made from the field tables by test_api; see docs/testing.md -->\n";
  const auto path =
      std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path().parent_path() / "docs/api.md";
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const size_t mark = text.str().find(kMark);
  ASSERT_NE(mark, std::string::npos) << path << " lacks the mark";
  const std::string before = text.str().substr(0, mark + kMark.size());
  if (std::getenv("SLUICE_UPDATE_DOCS") != nullptr) {
    std::ofstream(path, std::ios::binary) << before << field_checklist();
    return;
  }
  EXPECT_EQ(text.str().substr(before.size()), field_checklist())
      << "run test_api with SLUICE_UPDATE_DOCS=1 to write " << path;
}

}  // namespace
}  // namespace sluice::api
