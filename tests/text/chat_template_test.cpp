// Published chat templates against what Jinja2 renders, and what a rendering promises beyond its text.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

json::value read_json(const fs::path& path) {
  auto parsed = parse_json(read_file(path), path.filename().string());
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() ? *parsed : json::value();
}

// 2025-07-26 12:30:00, the clock of the reference renderings
RenderOptions reference_clock() {
  using namespace std::chrono;
  return {local_days(year(2025) / July / 26) + hours(12) + minutes(30)};
}

// The variables of a case: its own over those of the context.
json::object variables_of(const json::object& context, const json::object& conversation) {
  json::object variables = context;
  variables.erase("now");
  for (const auto& member : conversation) variables[member.key()] = member.value();
  return variables;
}

void check_rendering(const ChatTemplate& chat_template, const json::object& variables,
                     const json::object& expected) {
  const Result<Rendering> rendering = chat_template.render(variables, reference_clock());
  if (const json::value* text = expected.if_contains("text")) {
    ASSERT_TRUE(rendering.ok()) << rendering.error().message;
    EXPECT_EQ(rendering->text(), std::string(text->as_string()));
  } else {
    EXPECT_FALSE(rendering.ok()) << "rendered to: " << rendering->text() << "\nwanted the error "
                                 << expected.at("error").as_string();
  }
}

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
