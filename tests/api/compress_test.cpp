// `compress` in requests of every dialect, with a compressor that notes what it was asked.
#include <gtest/gtest.h>

#include "tests/api/rig.h"

namespace sluice::api {
namespace {

// Keeps the first ten bytes and what is marked or asked.
class FakeCompressor : public compress::PromptCompressor {
 public:
  Result<compress::Compressed> compress(const compress::Task& task) override {
    options = task.options;
    salt = task.caller.cache_salt;
    asked.clear();
    compress::Compressed out{.original_tokens = 90, .kept_tokens = 40, .seconds = 0.5};
    for (const compress::Text& text : task.texts) {
      std::string made(text.text.substr(0, 10));
      for (const compress::ByteRange& range : text.marked)
        made += "[" + std::string(text.text.substr(range.begin, range.size())) + "]";
      made += text.text.substr(text.question.begin, text.question.size());
      asked.emplace_back(text.text);
      out.texts.push_back(made);
    }
    if (error) return *error;
    return out;
  }

  // Keeps every third token.
  Result<compress::KeptTokens> keep_tokens(const compress::Task& task,
                                           std::span<const Token> prompt) override {
    options = task.options;
    asked.clear();
    for (const compress::Text& text : task.texts) asked.emplace_back(text.text);
    if (error) return *error;
    compress::KeptTokens out{.original_tokens = 90, .kept_tokens = 30, .text = "a … b", .seconds = 0.5};
    for (size_t i = 0; i < prompt.size(); i += 3) out.kept.push_back(static_cast<int32_t>(i));
    return out;
  }

  compress::Options options;
  std::string salt;
  std::vector<std::string> asked;
  std::optional<Error> error;
};

class CompressTest : public testing::Test {
 protected:
  CompressTest() { rig.models.front().compressor = &compressor; }
  std::string refusal(const std::string& members) {
    return rig.refusal("/v1/completions", R"({"prompt": "some text", "compress": {)" + members + "}}");
  }

  FakeCompressor compressor;
  Rig rig;
};

const Events kEvents{{0, delta("ok")}, {0, choice_end()}, {0, finished(50, 0, 2)}};

TEST_F(CompressTest, MessagesAreMadeShorterAndSystemTextIsNot) {
  const std::string body = R"({"messages": [{"role": "system", "content": "system words stay whole"},
      {"role": "user", "content": "a long document of the user"}, {"role": "user", "content": "what?"}],
      "compress": {"ratio": 0.25, "min_keep": 3, "keep": ["doc", {"message": 1, "begin": 20, "end": 27}]}})";
  const engine::Submission submission = rig.submission("/v1/chat/completions", body);
  const std::string prompt = rig.shown(submission.request.prompt);
  EXPECT_NE(prompt.find("system words stay whole"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("user\na long doc[doc][he user]{"), std::string::npos) << prompt;
  EXPECT_EQ(compressor.options.ratio, 0.25);
  EXPECT_EQ(compressor.options.min_keep, 3);
  EXPECT_EQ(compressor.options.question, "what?");
  EXPECT_EQ(compressor.asked.size(), 2u);
  (void)rig.submission("/v1/chat/completions", R"({"messages": [{"role": "system", "content": "system words"},
      {"role": "user", "content": "what?"}], "compress": {"system": true, "question": "why"}})");
  EXPECT_EQ(compressor.asked.size(), 2u);
  EXPECT_EQ(compressor.options.question, "why");
}

TEST_F(CompressTest, PrefillRunsSomeTokensAtTheirPositions) {
  const std::string body = R"({"prompt": "a long document", "compress": {"mode": "prefill", "ratio": 0.3,
      "return_text": true}})";
  const engine::Submission full = rig.submission("/v1/completions", R"({"prompt": "a long document"})");
  const engine::Submission brief = rig.submission("/v1/completions", body);
  EXPECT_EQ(compressor.options.ratio, 0.3);
  EXPECT_EQ(compressor.asked, std::vector<std::string>{"a long document"});
  const std::vector<Token>& whole = full.request.prompt;
  ASSERT_EQ(brief.request.prompt.size(), (whole.size() + 2) / 3);
  EXPECT_EQ(brief.request.positions.sections, 1);
  ASSERT_EQ(brief.request.positions.values.size(), brief.request.prompt.size());
  for (size_t i = 0; i < brief.request.prompt.size(); ++i) {
    EXPECT_EQ(brief.request.positions.values[i], static_cast<int32_t>(3 * i));
    EXPECT_EQ(brief.request.prompt[i], whole[3 * i]);
  }
  EXPECT_TRUE(full.request.positions.values.empty());
  const std::string answer = rig.answer("/v1/completions", body, kEvents);
  EXPECT_NE(answer.find(R"("compression":{"mode":"prefill","original_tokens":90,"kept_tokens":30,)"
                        R"("cached":false,"seconds":0.5,"texts":["a … b"]})"),
            std::string::npos)
      << answer;
  compressor.error = Error{ErrorCode::Unsupported, "no positions here"};
  EXPECT_NE(refusal(R"("mode": "prefill")").find("no positions here"), std::string::npos);
}

TEST_F(CompressTest, EveryDialectReportsWhatWasKept) {
  const std::string chat = R"("messages": [{"role": "user", "content": "a long document"}], "max_tokens": 4,
      "stream": false, "compress": {"return_text": true}})";
  const std::string report = R"("compression":{"mode":"tokens","original_tokens":90,"kept_tokens":40,)"
                             R"("cached":false,"seconds":0.5,"texts":["a long doc"]})";
  const std::pair<const char*, std::string> cases[] = {
      {"/v1/chat/completions", "{" + chat},
      {"/v1/messages", "{" + chat},
      {"/api/chat", "{" + chat},
      {"/v1/completions", R"({"prompt": "a long document", "compress": {"return_text": true}})"},
      {"/completion", R"({"prompt": "a long document", "compress": {"return_text": true}})"},
      {"/v1/responses", R"({"input": "a long document", "compress": {"return_text": true}})"},
      {"/api/generate",
       R"({"prompt": "a long document", "stream": false, "compress": {"return_text": true}})"},
  };
  for (const auto& [path, body] : cases) {
    const std::string answer = rig.answer(path, body, kEvents);
    EXPECT_NE(answer.find(report), std::string::npos) << path << "\n" << answer;
  }
  const std::string streamed = rig.answer("/v1/completions", R"({"prompt": "a long document", "stream": true,
          "stream_options": {"include_usage": true}, "compress": {}})",
                                          kEvents);
  EXPECT_NE(streamed.find(R"("kept_tokens":40,"cached":false,"seconds":0.5}})"), std::string::npos)
      << streamed;
  const std::string plain = rig.answer("/v1/completions", R"({"prompt": "a long document"})", kEvents);
  EXPECT_EQ(plain.find("compression"), std::string::npos);
}

TEST_F(CompressTest, WrongValuesAreNamed) {
  EXPECT_EQ(refusal(R"("ratio": 1.5)"),
            "400 invalid_value compress.ratio: 'compress.ratio' is 1.5; it must be from 0 to 1");
  EXPECT_EQ(refusal(R"("ratio": 0)"),
            "400 invalid_value compress.ratio: 'compress.ratio' is 0; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(R"("mode": "telepathy")"),
            "400 invalid_value compress.mode: 'compress.mode' is \"telepathy\"; it must be one of tokens, "
            "prefill, summary, "
            "extract");
  EXPECT_EQ(refusal(R"("ratio": 0.5, "max_tokens": 10)"),
            "400 invalid_value compress: 'compress.ratio' and 'compress.max_tokens' must not both be given");
  EXPECT_EQ(refusal(R"("mode": "extract")"),
            "400 invalid_value compress: 'compress.schema' is missing; mode \"extract\" needs it");
  EXPECT_EQ(refusal(R"("keep": [{"begin": 3, "end": 900}])"),
            "400 invalid_value compress.keep: 'compress.keep[0]' ends at 900; the text has 9 characters");
  EXPECT_EQ(
      refusal(R"("keep": [{"begin": 3, "end": 3}])"),
      "400 invalid_value compress.keep: 'compress.keep[0]' begins at 3 and ends at 3; it must end behind "
      "its beginning");
  EXPECT_EQ(
      refusal(R"("keep": ["other"])"),
      "400 invalid_value compress.keep: 'compress.keep[0]' is 'other', which is in no text that is made "
      "shorter");
  EXPECT_EQ(rig.refusal("/v1/completions", R"({"prompt": [1, 2], "compress": {}})"),
            "400 invalid_value compress: 'compress' makes texts shorter; 'prompt' holds token ids");
  compressor.error = Error{ErrorCode::Unavailable, "3 prompts are being compressed, which is the limit"};
  EXPECT_EQ(refusal("").substr(0, 3), "503");
  rig.models.front().compressor = nullptr;
  EXPECT_EQ(refusal("").substr(0, 3), "400");
}

TEST_F(CompressTest, ResultsAreSharedByCacheSaltOnly) {
  rig.context.cache_salt = "alice";
  (void)rig.submission("/v1/completions", R"({"prompt": "text", "cache_salt": "s", "compress": {}})");
  EXPECT_EQ(compressor.salt, "alice\x1fs");
}

}  // namespace
}  // namespace sluice::api
