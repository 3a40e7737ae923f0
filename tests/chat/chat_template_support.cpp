#include "tests/chat/chat_template_support.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace sluice::chat {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

json::value read_json(const std::filesystem::path& path) {
  auto parsed = parse_json(read_file(path), path.filename().string());
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() ? *parsed : json::value();
}

RenderOptions reference_clock() {
  using namespace std::chrono;
  return {local_days(year(2025) / July / 26) + hours(12) + minutes(30)};
}

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

}  // namespace sluice::chat
