#include "llm/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "tests/llm/tiny_model.h"

namespace sluice::llm {
namespace {

const Settings kEngine{"device=ref", "kv-tokens=1024"};

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Session>> opened = Session::open(model_.path(), kEngine);
    ASSERT_TRUE(opened) << opened.error().message;
    session_ = std::move(*opened);
  }

  TinyModel model_;
  std::unique_ptr<Session> session_;
};

template <class T>
void expect_error(const Result<T>& result, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST_F(SessionTest, StreamsTheAnswerThatItReturns) {
  std::string streamed;
  const Result<Answer> answer = session_->generate(
      "hello there", {"temperature=0", "max-tokens=12", "ignore_eos=on"}, [&](std::string_view piece) {
        streamed += piece;
        return true;
      });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->text, streamed);
  EXPECT_EQ(answer->end, Answer::End::Length);
  EXPECT_EQ(answer->generated_tokens, 12);
  EXPECT_EQ(answer->prompt_tokens, 18);  // "<s>user hello there."
  EXPECT_GT(answer->total_s, 0);
}

TEST_F(SessionTest, TheTemplateIsLeftOutWhereRawIsOn) {
  const Result<Answer> raw = session_->generate("hello", {"raw=on", "max-tokens=1"});
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(raw->prompt_tokens, 5);
  const Result<Answer> system = session_->generate("hello", {"system=be kind", "max-tokens=1"});
  ASSERT_TRUE(system) << system.error().message;
  EXPECT_EQ(system->prompt_tokens, 27);  // "<s>system be kind.user hello."
  expect_error(session_->generate("hello", {"raw=on", "system=x"}), ErrorCode::InvalidArgument, "system");
}

TEST_F(SessionTest, AConversationIsTheSameAsItsPrompt) {
  const Settings greedy{"temperature=0", "max-tokens=8"};
  const Result<Answer> chat = session_->chat({{"system", "be kind"}, {"user", "hello"}}, greedy);
  ASSERT_TRUE(chat) << chat.error().message;
  const Result<Answer> prompt =
      session_->generate("hello", {"system=be kind", "temperature=0", "max-tokens=8"});
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(chat->text, prompt->text);
  EXPECT_EQ(chat->prompt_tokens, prompt->prompt_tokens);
}

TEST_F(SessionTest, TheCallbackEndsTheAnswer) {
  // Where this thread is slow to look, the whole answer is there already: then it is asked again.
  Answer::End end = Answer::End::Length;
  for (int attempt = 0; attempt < 100 && end != Answer::End::Cancelled; ++attempt) {
    int pieces = 0;
    const Result<Answer> answer =
        session_->generate("hello", {"ignore-eos=on", "max-tokens=200"}, [&](std::string_view piece) {
          pieces += piece.empty() ? 0 : 1;
          return piece.empty();
        });
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(pieces, 1);
    end = answer->end;
  }
  EXPECT_EQ(end, Answer::End::Cancelled);
  EXPECT_TRUE(session_->generate("hello", {"max-tokens=1"}));
}

TEST_F(SessionTest, AnExceptionOfTheCallbackIsAnError) {
  expect_error(
      session_->generate("hello", {"ignore-eos=on"},
                         [](std::string_view) -> bool { throw std::runtime_error("no more paper"); }),
      ErrorCode::Internal, "no more paper");
  EXPECT_TRUE(session_->generate("hello", {"max-tokens=1"}));
}

TEST_F(SessionTest, SeveralThreadsAskAtOnce) {
  const Settings greedy{"temperature=0", "max-tokens=20", "ignore-eos=on"};
  const std::vector<std::string> prompts{"one", "the second", "a third prompt", "four"};
  std::vector<std::string> alone;
  for (const std::string& prompt : prompts) alone.push_back(session_->generate(prompt, greedy)->text);
  std::vector<std::string> together(prompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] {
      const Result<Answer> answer = session_->generate(prompts[i], greedy);
      together[i] = answer ? answer->text : answer.error().message;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
}

TEST_F(SessionTest, EmbedsToTheModelsWidth) {
  const Result<std::vector<float>> mean = session_->embed("hello"),
                                   last = session_->embed("hello", {"pooling=last"});
  ASSERT_TRUE(mean) << mean.error().message;
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(mean->size(), 32U);
  EXPECT_NE(*mean, *last);
  double squares = 0;
  for (const float value : *mean) squares += double{value} * double{value};
  EXPECT_NEAR(squares, 1, 1e-4);
}

TEST_F(SessionTest, TokensGoThereAndBack) {
  const Result<std::vector<Token>> tokens = session_->tokenize("abc. z<s>", {"special=on"});
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(*tokens, (std::vector<Token>{4, 5, 6, 3, 2, 29, 0}));
  EXPECT_EQ(*session_->detokenize(*tokens), "abc. z<s>");
  EXPECT_EQ(*session_->detokenize(*tokens, {"skip-special=on"}), "abc. z");
  expect_error(session_->detokenize({4, 64000}), ErrorCode::InvalidArgument, "64000");
  expect_error(session_->detokenize({-1}), ErrorCode::InvalidArgument, "-1");
}

TEST_F(SessionTest, WrongSettingsAreErrors) {
  expect_error(session_->generate("hello", {"temprature=1"}), ErrorCode::InvalidArgument, "temperature");
  expect_error(session_->generate("hello", {"max-tokens=0"}), ErrorCode::InvalidArgument, "max-tokens");
  expect_error(session_->generate("hello", {"temperature=9"}), ErrorCode::InvalidArgument, "0 to 2");
  expect_error(session_->chat({{"user", "hello"}}, {"raw=on"}), ErrorCode::InvalidArgument, "raw");
  expect_error(session_->generate(std::string(300, 'a')), ErrorCode::LimitExceeded, "context");
  expect_error(session_->embed(std::string(300, 'a')), ErrorCode::LimitExceeded, "context");
}

TEST(SessionOpen, WhatCannotBeOpenedIsNamed) {
  expect_error(Session::open("/no/such/model.gguf"), ErrorCode::NotFound, "/no/such/model.gguf");
  const TinyModel model;
  expect_error(Session::open(model.path(), {"device=abacus"}), ErrorCode::InvalidArgument, "abacus");
  expect_error(Session::open(model.path(), {"context=9"}), ErrorCode::InvalidArgument, "context");
  std::filesystem::resize_file(model.path() + "/model.safetensors", 100);
  expect_error(Session::open(model.path(), kEngine), ErrorCode::Corrupt, "model.safetensors");
}

TEST(SessionOpen, AModelNeedsItsTokenizer) {
  const TinyModel model(false);
  EXPECT_FALSE(Session::open(model.path(), kEngine));
}

}  // namespace
}  // namespace sluice::llm
