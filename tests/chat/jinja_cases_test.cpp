// Every small template and every remembered one against what Jinja2 made of it (tools/make_jinja_cases.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/chat/chat_template_support.h"

namespace sluice::chat {
namespace {

namespace fs = std::filesystem;

const fs::path kData = SLUICE_TEST_DATA;

void check(const Result<ChatTemplate>& parsed, const json::object& variables, const json::object& expected) {
  if (!parsed.ok()) {
    EXPECT_TRUE(expected.contains("error"))
        << parsed.error().message << "\nwanted: " << json::serialize(expected);
    return;
  }
  check_rendering(*parsed, variables, expected);
}

TEST(JinjaCases, SnippetsRenderAsJinja2Does) {
  const json::object variables = read_json(kData / "jinja_variables.json").as_object();
  const json::value cases = read_json(kData / "jinja_cases.json");
  for (const json::value& snippet : cases.at("snippets").as_array()) {
    const std::string source(snippet.at("template").as_string());
    SCOPED_TRACE(source);
    check(ChatTemplate::parse(source), variables, snippet.as_object());
  }
  EXPECT_GE(cases.at("snippets").as_array().size(), 1000u);
}

TEST(JinjaCases, RememberedTemplatesRenderAsJinja2Does) {
  const json::value conversations = read_json(kData / "conversations.json");
  const json::value cases = read_json(kData / "jinja_cases.json");
  for (const auto& expected : cases.at("templates").as_object()) {
    const std::string name(expected.key());
    SCOPED_TRACE(name);
    const Result<ChatTemplate> parsed = ChatTemplate::parse(read_file(kData / "templates" / name));
    for (const auto& rendered : expected.value().as_object()) {
      SCOPED_TRACE(std::string(rendered.key()));
      check(parsed,
            variables_of(conversations.at("context").as_object(),
                         conversations.at("conversations").at(rendered.key()).as_object()),
            rendered.value().as_object());
    }
  }
}

}  // namespace
}  // namespace sluice::chat
