// Published chat templates against what Jinja2 renders, and what a rendering promises beyond its text.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/text/chat_template_support.h"

namespace sluice::text {
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

}  // namespace
}  // namespace sluice::text
