#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

class KserveTest : public testing::Test {
 protected:
  Reply generate(std::string_view body, std::string_view verb = "generate") {
    return rig_.call("POST", std::string("/v2/models/{model}/") + std::string(verb), body, "tiny");
  }
  // All that a job's writer gives for these events.
  static std::string written(Reply reply, const Events& events) {
    auto* job = std::get_if<EngineJob>(&reply);
    if (job == nullptr) return "refused";
    std::string out;
    for (const auto& [index, event] : events) job->writer->take(index, event, out);
    while (job->writer->has_more()) job->writer->next_piece(out);
    return out;
  }
  Rig rig_;
};

TEST_F(KserveTest, GeneratesText) {
  const Events events{{0, delta("He")}, {0, delta("llo")}, {0, choice_end()}, {0, finished(3, 1, 5)}};
  EXPECT_EQ(written(generate(R"({"id":"7","text_input":"x","parameters":{"max_tokens":5}})"), events),
            R"({"model_name":"tiny","model_version":"1","id":"7","text_output":"Hello","details":)"
            R"({"finish_reason":"stop","prompt_tokens":3,"cached_tokens":1,"generated_tokens":5}})");
  EXPECT_EQ(
      written(generate(R"({"text_input":"x"})", "generate_stream"), events),
      "data: {\"model_name\":\"tiny\",\"model_version\":\"1\",\"text_output\":\"He\"}\n\n"
      "data: {\"model_name\":\"tiny\",\"model_version\":\"1\",\"text_output\":\"llo\"}\n\n"
      "data: {\"model_name\":\"tiny\",\"model_version\":\"1\",\"text_output\":\"\",\"details\":"
      "{\"finish_reason\":\"stop\",\"prompt_tokens\":3,\"cached_tokens\":1,\"generated_tokens\":5}}\n\n");
}

// The parameters of KServe's form and the fields of Triton's mean the same.
TEST_F(KserveTest, ReadsParametersInBothForms) {
  for (const char* body : {R"({"text_input":"x","parameters":{"max_tokens":5,"temperature":0.5}})",
                           R"({"text_input":"x","max_tokens":5,"temperature":0.5})"}) {
    Reply reply = generate(body);
    const auto& sampling =
        std::get<request::SamplingParams>(std::get<EngineJob>(reply).submissions.front().request.task);
    EXPECT_EQ(sampling.max_tokens, 5);
  }
  const Reply wrong = generate(R"({"text_input":"x","parameters":{"max_tokens":1000000}})");
  EXPECT_EQ(std::get<ApiError>(wrong).code, "context_length_exceeded");
  EXPECT_EQ(std::get<ApiError>(generate("{}")).param, "text_input");
}

TEST_F(KserveTest, UnknownModelsGetTheNamesOfThoseThereAre) {
  const Reply reply = rig_.call("GET", "/v2/models/{model}", "", "other");
  EXPECT_EQ(std::get<ApiError>(reply).message, "The model 'other' does not exist. This server has 'tiny'.");
  const Reply known = rig_.call("GET", "/v2/models/{model}", "", "tiny");
  EXPECT_NE(std::get<Answer>(known).body.find(R"("name":"tiny","versions":["1"],"platform":"sluice")"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::api
