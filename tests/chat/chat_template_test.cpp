// Published chat templates against what Jinja2 renders, and what a rendering promises beyond its text.
#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "tests/chat/chat_template_support.h"

namespace sluice::chat {
namespace {

namespace fs = std::filesystem;

TEST(ChatTemplate, PublishedTemplatesRenderAsJinja2DoesInEveryCase) {
  const fs::path folder = fs::path(SLUICE_SHARED) / "templates";
  if (!fs::exists(folder / "cases.json")) GTEST_SKIP() << folder << " is not there";
  const json::value cases = read_json(folder / "cases.json");
  size_t templates = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++templates;
    const Result<ChatTemplate> parsed = ChatTemplate::parse(read_file(entry.path()));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const json::value reference = read_json(fs::path(entry.path()).replace_extension(".json"));
    for (const auto& expected : reference.at("rendered").as_object()) {
      SCOPED_TRACE(std::string(expected.key()));
      check_rendering(*parsed,
                      variables_of(reference.at("context").as_object(), cases.at(expected.key()).as_object()),
                      expected.value().as_object());
    }
  }
  EXPECT_GE(templates, 32u);
}

TEST(ChatTemplate, LongConversationsRenderInMilliseconds) {
  const fs::path file = fs::path(SLUICE_SHARED) / "templates/meta-llama-Llama-3.1-8B-Instruct.jinja";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
  json::array messages;
  for (int i = 0; i < 100; ++i) {
    messages.push_back({{"role", "user"}, {"content", std::string(200, 'q')}});
    messages.push_back({{"role", "assistant"}, {"content", std::string(800, 'a')}});
  }
  const json::object variables = {
      {"messages", messages}, {"bos_token", "<s>"}, {"add_generation_prompt", true}};
  const Result<ChatTemplate> parsed = ChatTemplate::parse(read_file(file));
  ASSERT_TRUE(parsed.ok());
  double best = 1e9;  // seconds of processor time
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    ASSERT_TRUE(parsed->render(variables).ok());
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  RecordProperty("microseconds", static_cast<int>(best * 1e6));
  // Far above what it takes, for slow machines and sanitizers.
  EXPECT_LT(best, 0.05);
  std::printf("200 messages in %.0f us\n", best * 1e6);
}

}  // namespace
}  // namespace sluice::chat
