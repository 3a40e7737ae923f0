#include "api/core/job_line.h"

#include <gtest/gtest.h>

namespace sluice::api {
namespace {

Result<ParsedRequest> read_line(std::string_view text) {
  return read_job_line(parse_json(text, "line")->get_object());
}

std::string refusal_of_line(std::string_view text) {
  const Result<ParsedRequest> draft = read_line(text);
  return draft ? "none" : draft.error().message;
}

TEST(JobLineTest, ReadsPromptsMessagesAndParameters) {
  const Result<ParsedRequest> text =
      read_line(R"({"prompt":"a","max_tokens":3,"temperature":0.5,"logprobs":2})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(std::get<std::string>(text->prompts.front()), "a");
  EXPECT_EQ(text->max_tokens, 3);
  EXPECT_EQ(text->temperature, 0.5);
  EXPECT_EQ(text->logprobs, 2);
  const Result<ParsedRequest> ids = read_line(R"({"prompt":[1,2]})");
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(std::get<std::vector<Token>>(ids->prompts.front()), (std::vector<Token>{1, 2}));
  const Result<ParsedRequest> chat = read_line(R"({"messages":[{"role":"user","content":"a"}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->chat.messages.size(), 1u);
}

TEST(JobLineTest, RefusesWhatTheApiRefuses) {
  EXPECT_EQ(refusal_of_line("{}"), "'prompt' or 'messages' is missing");
  EXPECT_EQ(refusal_of_line(R"({"prompt":["a","b"]})"), "'prompt' must be a string or a list of token ids");
  EXPECT_EQ(refusal_of_line(R"({"prompt":"a","temperature":9})"),
            "'temperature' is 9; it must be from 0 to 2");
  EXPECT_EQ(refusal_of_line(R"({"prompt":"a","tools":[{"type":"function","name":"f"}]})"), "none");
  EXPECT_EQ(refusal_of_line(R"({"prompt":"a","tools":[]})"), "none");
  EXPECT_EQ(refusal_of_line(R"({"prompt":"a","nosuch":1})"), "none");
}

}  // namespace
}  // namespace sluice::api
