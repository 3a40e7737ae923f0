#include "base/published_json.h"

#include <gtest/gtest.h>

namespace sluice {

TEST(PublishedJson, ReadsThePythonConstants) {
  const auto value =
      parse_published_json(R"({"limit": [0.0, Infinity, -Infinity], "none": NaN})", "config.json");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(
      json::serialize(*value),
      R"({"limit":[0E0,{"__float__":"Infinity"},{"__float__":"-Infinity"}],"none":{"__float__":"NaN"}})");
}

TEST(PublishedJson, LeavesTextsAlone) {
  const std::string text = R"({"Infinity":"NaN \" -Infinity \\","of":"\\\"NaN"})";
  const auto value = parse_published_json(text, "config.json");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(json::serialize(*value), text);
}

TEST(PublishedJson, RefusesWhatIsNoConstant) {
  for (const char* text :
       {"[Infinite]", "[+Infinity]", "[NaNs]", "[\"Infinity]", "[Infinity", "\"\\", "[NaN \"\\"})
    EXPECT_FALSE(parse_published_json(text, "config.json").ok()) << text;
}

}  // namespace sluice
