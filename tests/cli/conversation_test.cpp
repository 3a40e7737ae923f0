#include "cli/terminal/conversation.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

std::vector<std::string> roles(const Conversation& conversation) {
  std::vector<std::string> out;
  for (const llm::Message& message : conversation.messages()) out.push_back(message.role);
  return out;
}

using Roles = std::vector<std::string>;

TEST(Conversation, KeepsTheSystemMessageFirst) {
  Conversation conversation;
  conversation.say("hello");
  conversation.set_system("be brief");
  EXPECT_EQ(roles(conversation), (Roles{"system", "user"}));
  conversation.set_system("be kind");
  EXPECT_EQ(conversation.messages().front().content, "be kind");
  conversation.clear();
  EXPECT_EQ(roles(conversation), Roles{"system"});
  conversation.set_system("");
  EXPECT_TRUE(conversation.messages().empty());
  conversation.set_system("");
  conversation.clear();
  EXPECT_TRUE(conversation.messages().empty());
}

TEST(Conversation, TakesBackAnswersAndQuestions) {
  Conversation conversation;
  EXPECT_FALSE(conversation.take_back_answer());
  conversation.say("one");
  EXPECT_FALSE(conversation.take_back_answer());
  conversation.answer("two");
  EXPECT_TRUE(conversation.take_back_answer());
  EXPECT_EQ(roles(conversation), Roles{"user"});
  conversation.answer("three");
  conversation.take_back_question();
  EXPECT_TRUE(conversation.messages().empty());
  conversation.take_back_question();
}

class SavedConversation : public testing::Test {
 protected:
  ~SavedConversation() override { std::filesystem::remove(path_); }
  Status load(const std::string& text) {
    std::ofstream(path_) << text;
    return conversation_.load(path_);
  }
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("sluice_conversation_" + std::to_string(getpid()) + ".json"))
          .string();
  Conversation conversation_;
};

TEST_F(SavedConversation, ComesBackAsItWas) {
  conversation_.set_system("tab\tand \"quotes\"");
  conversation_.say("ü\n✓");
  conversation_.answer("");
  ASSERT_TRUE(conversation_.save(path_));
  Conversation other;
  ASSERT_TRUE(other.load(path_));
  EXPECT_EQ(other.to_json(), conversation_.to_json());
}

TEST_F(SavedConversation, IsLeftAloneByABadFile) {
  conversation_.say("keep me");
  for (const char* text :
       {"", "[]", "{}", R"({"messages": 3})", R"({"messages": [3]})", R"({"messages": [{"role": "user"}]})",
        R"({"messages": [{"role": "user", "content": 5}]})", "{"})
    EXPECT_FALSE(load(text)) << text;
  EXPECT_FALSE(conversation_.load("/nowhere/at/all"));
  EXPECT_FALSE(conversation_.save("/nowhere/at/all"));
  EXPECT_EQ(roles(conversation_), Roles{"user"});
}

TEST(ChangeSetting, ReadsNumbersSwitchesAndTexts) {
  llm::SamplingFlags flags;
  EXPECT_TRUE(change_setting(flags, "temp 0.25"));
  EXPECT_TRUE(change_setting(flags, "top-k 7"));
  EXPECT_TRUE(change_setting(flags, "ignore-eos on"));
  EXPECT_TRUE(change_setting(flags, "stop two words"));
  EXPECT_TRUE(change_setting(flags, "seed 12"));
  EXPECT_EQ(flags.chosen.temperature, 0.25);
  EXPECT_EQ(flags.chosen.top_k, 7);
  EXPECT_TRUE(flags.ignore_eos);
  EXPECT_EQ(flags.stop, std::vector<std::string>{"two words"});
  EXPECT_EQ(flags.seed, 12);
  EXPECT_TRUE(change_setting(flags, "stop"));
  EXPECT_TRUE(flags.stop.empty());
  EXPECT_NE(list_settings(flags).find("0.25"), std::string::npos);
}

TEST(ChangeSetting, RefusesWhatIsOutOfRangeOrNoNumber) {
  llm::SamplingFlags flags;
  for (const char* words : {"temp 3", "temp -1", "temp x", "temp", "temp nan", "temp 1e999", "top-k 1x",
                            "top-k 2.5", "ignore-eos maybe", "nothing 1", "", "seed 99999999999999999999"}) {
    const Status status = change_setting(flags, words);
    EXPECT_FALSE(status) << words;
  }
  EXPECT_TRUE(flags.chosen.empty());
  EXPECT_NE(change_setting(flags, "tmep 1").error().message.find("top-k"), std::string::npos);
}

TEST(SamplingFlags, GiveNoMoreTokensThanThereIsRoomFor) {
  llm::SamplingFlags flags;
  EXPECT_EQ(flags.params(90).max_tokens, 90);
  flags.max_tokens = 10;
  EXPECT_EQ(flags.params(90).max_tokens, 10);
  EXPECT_EQ(flags.params(4).max_tokens, 4);
  flags.seed = 5;
  EXPECT_EQ(request::sampling_of(flags.params(4))->seed, 5u);
}

}  // namespace
}  // namespace sluice::cli
