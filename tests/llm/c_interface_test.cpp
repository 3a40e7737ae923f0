#include <gtest/gtest.h>
#include <sluice.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/llm/tiny_model.h"

namespace sluice::llm {
namespace {

constexpr const char* kLoading[] = {"device=ref", "kv-tokens=1024", nullptr};

class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sluice_load(model_.path().c_str(), kLoading, &session_), SLUICE_OK) << sluice_error_message();
  }
  void TearDown() override { sluice_unload(session_); }

  TinyModel model_;
  sluice_session* session_ = nullptr;
};

// Gathers text, and ends the answer after `most` pieces.
struct Sink {
  std::string text;
  int pieces = 0, most = 1 << 20;

  static int take(void* user, const char* text, size_t size) {
    Sink& sink = *static_cast<Sink*>(user);
    sink.text.append(text, size);
    sink.pieces += size > 0 ? 1 : 0;
    return sink.pieces >= sink.most ? 1 : 0;
  }
};

TEST_F(CInterface, GeneratesAndChats) {
  const char* const options[] = {"temperature=0", "max-tokens=6", "ignore-eos=on", nullptr};
  Sink prompt, chat;
  const sluice_output to_prompt{Sink::take, &prompt}, to_chat{Sink::take, &chat};
  sluice_answer answer{};
  ASSERT_EQ(sluice_generate(session_, "hello", options, &to_prompt, &answer), SLUICE_OK);
  EXPECT_EQ(answer.end, SLUICE_END_LENGTH);
  EXPECT_EQ(answer.generated_tokens, 6);
  EXPECT_EQ(answer.prompt_tokens, 12);
  const sluice_message message{"user", "hello"};
  const sluice_conversation conversation{&message, 1};
  ASSERT_EQ(sluice_chat(session_, &conversation, options, &to_chat, nullptr), SLUICE_OK);
  EXPECT_EQ(prompt.text, chat.text);
  EXPECT_FALSE(chat.text.empty());
}

TEST_F(CInterface, TheCallbackEndsTheAnswer) {
  const char* const options[] = {"ignore-eos=on", nullptr};
  sluice_answer answer{};
  answer.end = SLUICE_END_LENGTH;
  // Where this thread is slow to look, the whole answer is there already: then it is asked again.
  for (int attempt = 0; attempt < 100 && answer.end != SLUICE_END_CANCELLED; ++attempt) {
    Sink sink;
    sink.most = 1;
    const sluice_output output{Sink::take, &sink};
    ASSERT_EQ(sluice_generate(session_, "hello", options, &output, &answer), SLUICE_OK);
    EXPECT_EQ(sink.pieces, 1);
  }
  EXPECT_EQ(answer.end, SLUICE_END_CANCELLED);
}

TEST_F(CInterface, TwoSessionsAtOnce) {
  sluice_session* second = nullptr;
  ASSERT_EQ(sluice_load(model_.path().c_str(), kLoading, &second), SLUICE_OK);
  const char* const options[] = {"temperature=0", "max-tokens=6", nullptr};
  Sink one, two;
  const sluice_output to_one{Sink::take, &one}, to_two{Sink::take, &two};
  EXPECT_EQ(sluice_generate(session_, "hello", options, &to_one, nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_generate(second, "hello", options, &to_two, nullptr), SLUICE_OK);
  EXPECT_EQ(one.text, two.text);
  sluice_unload(second);
  EXPECT_EQ(sluice_generate(session_, "hello", options, nullptr, nullptr), SLUICE_OK);
}

TEST_F(CInterface, VectorsAndTokensAreHandedOver) {
  float* values = nullptr;
  size_t count = 0;
  ASSERT_EQ(sluice_embed(session_, "hello", nullptr, &values, &count), SLUICE_OK);
  EXPECT_EQ(count, 32U);
  sluice_free(values);
  int32_t* tokens = nullptr;
  ASSERT_EQ(sluice_tokenize(session_, "ab c", nullptr, &tokens, &count), SLUICE_OK);
  EXPECT_EQ(std::vector<int32_t>(tokens, tokens + count), (std::vector<int32_t>{4, 5, 2, 6}));
  char* text = nullptr;
  ASSERT_EQ(sluice_detokenize(session_, tokens, count, nullptr, &text), SLUICE_OK);
  EXPECT_STREQ(text, "ab c");
  sluice_free(text);
  sluice_free(tokens);
  ASSERT_EQ(sluice_tokenize(session_, "", nullptr, &tokens, &count), SLUICE_OK);
  EXPECT_EQ(count, 0U);
  sluice_free(tokens);
}

TEST_F(CInterface, ErrorsAreCodesWithAMessage) {
  const char* const unknown[] = {"colour=red", nullptr};
  EXPECT_EQ(sluice_generate(session_, "hello", unknown, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(sluice_error_message()).find("colour"), std::string::npos);
  EXPECT_EQ(sluice_generate(session_, nullptr, nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(sluice_error_message()), "argument 'prompt' is null");
  EXPECT_EQ(sluice_generate(nullptr, "hello", nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_load("/no/such/file.gguf", nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  const sluice_message empty{};
  const sluice_conversation conversation{&empty, 1};
  EXPECT_EQ(sluice_chat(session_, &conversation, nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  const int32_t wrong = 64000;
  char* text = nullptr;
  EXPECT_EQ(sluice_detokenize(session_, &wrong, 1, nullptr, &text), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);

  sluice_session* none = session_;
  EXPECT_EQ(sluice_load("/no/such/file.gguf", nullptr, &none), SLUICE_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(std::string(sluice_error_message()).find("/no/such/file.gguf"), std::string::npos);
}

TEST(CInterfaceVersion, HasThreeNumbers) {
  EXPECT_EQ(std::count(sluice_version(), sluice_version() + std::strlen(sluice_version()), '.'), 2);
}

}  // namespace
}  // namespace sluice::llm
