// /v1/completions: prompts of every form, echo and log-probabilities.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

constexpr std::string_view kCompletionsPath = "/v1/completions";

class CompletionTest : public testing::Test {
 protected:
  std::vector<std::string> prompts(std::string_view prompt) {
    Reply reply = rig_.post(kCompletionsPath, R"({"prompt":)" + std::string(prompt) + "}");
    if (const auto* error = std::get_if<ApiError>(&reply)) return {error->message};
    std::vector<std::string> out;
    for (const engine::Submission& submission : std::get<EngineJob>(reply).submissions)
      out.push_back(rig_.shown(submission.request.prompt));
    return out;
  }
  std::string choices(std::string_view body, const Events& events) {
    const std::string text = rig_.answer(kCompletionsPath, body, events);
    const size_t begin = text.find("\"choices\":"), end = text.find(",\"usage\"");
    return begin == std::string::npos ? text : text.substr(begin + 10, end - begin - 10);
  }

  Rig rig_;
};

using Texts = std::vector<std::string>;

TEST_F(CompletionTest, ReadsPromptsOfEveryForm) {
  EXPECT_EQ(prompts(R"("Hi")"), Texts{"{<s>}Hi"});
  EXPECT_EQ(prompts(R"(["Hi","<|im_end|>"])"), (Texts{"{<s>}Hi", "{<s>}<|im_end|>"}));
  EXPECT_EQ(prompts("[72,105]"), Texts{"Hi"});
  EXPECT_EQ(prompts("[[72],[257]]"), (Texts{"H", "{<|im_end|>}"}));
  const std::string forms =
      "'prompt' must be a string, a list of strings, a list of token ids or a list of such lists";
  for (const char* bad : {"5", "{}", "[-1]", "[1.5]", "[[\"a\"]]", "[[1],[-1]]", "[99999999999]", "[true]"})
    EXPECT_EQ(prompts(bad), Texts{forms}) << bad;
  EXPECT_EQ(prompts("[]"), Texts{"'prompt' is empty"});
  EXPECT_EQ(prompts("[[]]"), Texts{"'prompt' has no tokens; it must have at least 1"});
  EXPECT_EQ(prompts("[259]"), Texts{"'prompt' holds token 259; the vocabulary ends at 258"});
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"prompt":"","add_special_tokens":false})"),
            "400 invalid_value prompt: 'prompt' has no tokens; it must have at least 1");
}

TEST_F(CompletionTest, LimitsWhatOneRequestMayAsk) {
  std::string many = "[\"a\"";
  for (int i = 1; i < 257; ++i) many += ",\"a\"";
  EXPECT_EQ(prompts(many + "]"), Texts{"'prompt' has 257 entries; the limit is 256"});
  std::string some = "[\"a\"";
  for (int i = 1; i < 100; ++i) some += ",\"a\"";
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"n":11,"prompt":)" + some + "]}"),
            "400 invalid_value prompt: 100 prompts with 11 choices or beams each are asked for; the limit is "
            "1024 in all");
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"prompt":"a","n":17})"),
            "400 invalid_value n: 17 choices or beams are asked for; the limit is 16");
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"prompt":"a","max_tokens":0})"),
            "400 invalid_value max_tokens: 'max_tokens' is 0; without 'echo' it must be at least 1");
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"prompt":"a","suffix":"b"})"),
            "400 unsupported_parameter suffix: 'suffix' is not supported: text is generated at the end only");
}

TEST_F(CompletionTest, DefaultsToSixteenTokens) {
  EXPECT_EQ(rig_.submission(kCompletionsPath, R"({"prompt":"a"})").request.sampling().max_tokens, 16);
  EXPECT_EQ(
      rig_.submission(kCompletionsPath, R"({"prompt":"a","n_predict":-1})").request.sampling().max_tokens,
      198);
}

TEST_F(CompletionTest, WholeAnswerOfSeveralPrompts) {
  const Events events{
      {1, delta("b")},   {0, delta("a")},        {1, choice_end(engine::FinishReason::Length)},
      {0, choice_end()}, {0, finished(2, 1, 1)}, {1, finished(3, 0, 1)}};
  const std::string text = rig_.answer(kCompletionsPath, R"({"prompt":["x","yz"]})", events);
  EXPECT_EQ(
      text,
      R"({"id":"cmpl-r1","object":"text_completion","created":1700000000,"model":"tiny","choices":[)"
      R"({"index":0,"text":"a","logprobs":null,"finish_reason":"stop","stop_reason":null},)"
      R"({"index":1,"text":"b","logprobs":null,"finish_reason":"length","stop_reason":null}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,)"
      R"("prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}},)"
      R"("system_fingerprint":"sluice-0.1.0","timings":{"cache_n":1,"prompt_n":4,"prompt_ms":0,)"
      R"("prompt_per_token_ms":0,"prompt_per_second":0,"predicted_n":2,"predicted_ms":0,)"
      R"("predicted_per_token_ms":0,"predicted_per_second":0}})");
}

// What lm-eval asks: the log-probabilities of a prompt, and nothing generated.
TEST_F(CompletionTest, EchoesThePromptWithItsLogprobs) {
  const std::string body = R"({"prompt":"xé","echo":true,"max_tokens":0,"logprobs":1)";
  const engine::Submission made = rig_.submission(kCompletionsPath, body + "}");
  EXPECT_EQ(made.request.sampling().max_tokens, 1);
  EXPECT_EQ(made.request.sampling().prompt_logprobs, 1);
  engine::Delta prompt;
  prompt.prompt_logprobs = delta("xé").tokens;
  const Events events{
      {0, prompt}, {0, delta("?")}, {0, choice_end(engine::FinishReason::Length)}, {0, finished(4, 0, 1)}};
  const std::string expected =
      R"([{"index":0,"text":"xé","logprobs":{"tokens":["<s>","x","�","�"],)"
      R"("token_logprobs":[null,-0.5,-0.5,-0.5],)"
      R"("top_logprobs":[null,{"x":-0.5,"z":-2},{"�":-0.5,"z":-2},{"�":-0.5,"z":-2}],"text_offset":[0,3,4,5]},)"
      R"("finish_reason":"length","stop_reason":null}])";
  EXPECT_EQ(choices(body + "}", events), expected);
  const std::string stream = rig_.answer(kCompletionsPath, body + R"(,"stream":true})", events);
  EXPECT_NE(stream.find(R"("choices":[{"index":0,"text":"xé","logprobs":{"tokens":["<s>","x")"),
            std::string::npos)
      << stream;
  EXPECT_NE(stream.find(R"("text":"","logprobs":null,"finish_reason":"length")"), std::string::npos);
  EXPECT_NE(stream.find(R"("predicted_n":0)"), std::string::npos);
  EXPECT_EQ(stream.find("?"), std::string::npos);
}

// An answer of megabytes is never there as a whole.
TEST_F(CompletionTest, WritesLongAnswersInPieces) {
  engine::Delta prompt;
  prompt.prompt_logprobs = delta(std::string(20'000, 'x')).tokens;
  for (const char* fields : {R"("prompt_logprobs":2)", R"("echo":true,"logprobs":2)"}) {
    Reply reply = rig_.post(kCompletionsPath, fmt::format(R"({{"prompt":"x",{}}})", fields));
    AnswerWriter& writer = *std::get<EngineJob>(reply).writer;
    const Events events{{0, prompt}, {0, delta("a")}, {0, choice_end()}, {0, finished(2, 0, 1)}};
    std::string whole;
    for (const auto& [index, event] : events) writer.take(index, event, whole);
    EXPECT_TRUE(writer.done());
    size_t longest = whole.size();
    while (writer.has_more()) {
      std::string piece;
      writer.next_piece(piece);
      longest = std::max(longest, piece.size());
      whole += piece;
    }
    EXPECT_GT(whole.size(), 2 * longest);
    const Result<json::value> value = parse_json(whole, "answer");
    ASSERT_TRUE(value.ok()) << value.error().message;
    const json::object& choice = value->at("choices").at(0).as_object();
    const json::value* list = choice.if_contains("prompt_logprobs");
    if (list == nullptr) {
      for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        EXPECT_EQ(choice.at("logprobs").at(name).as_array().size(), 20'002u) << name;
      EXPECT_EQ(choice.at("logprobs").at("text_offset").as_array().at(20'001), 20'003);
    } else {
      EXPECT_EQ(list->as_array().size(), 20'001u);
    }
  }
}

TEST_F(CompletionTest, GivesPromptLogprobs) {
  engine::Delta prompt;
  prompt.prompt_logprobs = delta("x").tokens;
  EXPECT_EQ(
      choices(R"({"prompt":"x","prompt_logprobs":2})",
              {{0, prompt}, {0, delta("a")}, {0, choice_end()}, {0, finished(2, 0, 1)}}),
      R"([{"index":0,"text":"a","logprobs":null,"finish_reason":"stop","stop_reason":null,"prompt_logprobs":[null,)"
      R"({"120":{"logprob":-0.5,"rank":1,"decoded_token":"x"},"122":{"logprob":-2,"rank":2,"decoded_token":"z"}}]}])");
  EXPECT_NE(
      choices(R"({"prompt":"x","prompt_logprobs":2,"n":2})", {{0, prompt},
                                                              {0, delta("a")},
                                                              {0, delta("b", 1)},
                                                              {0, choice_end()},
                                                              {0, choice_end(engine::FinishReason::Stop, 1)},
                                                              {0, finished(2, 0, 2)}})
          .find(R"({"index":1,"text":"b","logprobs":null,"finish_reason":"stop","stop_reason":null,)"
                R"("prompt_logprobs":null})"),
      std::string::npos)
      << "they are given once for each prompt";
  request::Sampled& unlikely = prompt.prompt_logprobs.front();
  unlikely = {.token = 'y', .logprob = -9, .top = {{'x', -0.5F}}, .rank = 17};
  EXPECT_NE(choices(R"({"prompt":"y","prompt_logprobs":1})",
                    {{0, prompt}, {0, delta("a")}, {0, choice_end()}, {0, finished(2, 0, 1)}})
                .find(R"("121":{"logprob":-9,"rank":17,"decoded_token":"y"})"),
            std::string::npos);
  EXPECT_EQ(rig_.refusal(kCompletionsPath, R"({"prompt":"x","prompt_logprobs":2,"stream":true})"),
            "400 invalid_value prompt_logprobs: 'prompt_logprobs' is not available in streams");
}

TEST_F(CompletionTest, Stream) {
  const std::string text = rig_.answer(
      kCompletionsPath, R"({"prompt":"x","stream":true,"logprobs":0,"return_tokens_as_token_ids":true})",
      {{0, delta("a")}, {0, delta("b")}, {0, choice_end()}, {0, finished(2, 0, 2)}});
  const std::string head =
      R"(data: {"id":"cmpl-r1","object":"text_completion","created":1700000000,"model":"tiny",)"
      R"("system_fingerprint":"sluice-0.1.0","choices":[{"index":0,)";
  EXPECT_TRUE(text.starts_with(
      head +
      R"("text":"a","logprobs":{"tokens":["token_id:97"],"token_logprobs":[-0.5],)"
      R"("top_logprobs":[{"token_id:97":-0.5,"token_id:122":-2}],"text_offset":[0]},"finish_reason":null}]})"
      "\n\n" +
      head + R"("text":"b","logprobs":{"tokens":["token_id:98"],)"))
      << text;
  EXPECT_TRUE(text.ends_with("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace sluice::api
