#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

std::string problem(std::string_view text, JsonLimits limits = {}) {
  const Result<json::value> value = parse_json(text, "thing.json", limits);
  return value.ok() ? "" : value.error().message;
}

TEST(Json, AcceptsPlainDocuments) {
  const Result<json::value> value = parse_json(R"({"a": [1, 2.5, "x", null, true], "b": {"c": -3}})", "t");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->at("b").at("c").as_int64(), -3);
}

TEST(Json, NamesWhatIsWrong) {
  EXPECT_THAT(problem(R"({"a": 1, "a": 2})"), HasSubstr("duplicate key 'a'"));
  EXPECT_THAT(problem(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("duplicate key 'b'"));
  EXPECT_EQ(problem(R"([{"a": 1}, {"a": 2}])"), "");
  EXPECT_THAT(problem("[1e999]"), HasSubstr("thing.json"));
  EXPECT_THAT(problem("[NaN]"), HasSubstr("invalid JSON"));
  EXPECT_THAT(problem("[1] x"), HasSubstr("extra data"));
  EXPECT_THAT(problem("{\"a\""), HasSubstr("incomplete"));
  EXPECT_THAT(problem("\"\xff\""), HasSubstr("invalid JSON"));
  EXPECT_THAT(problem(std::string(100, '[')), HasSubstr("too deep"));
  EXPECT_THAT(problem("[1, 2, 3]", {.depth = 8, .bytes = 4}), HasSubstr("limit 4"));
}

TEST(Json, TypedLookups) {
  const json::value value = *parse_json(R"({"i": 4, "w": 4.0, "f": 1.5, "s": "x", "n": null})", "t");
  const json::object& object = value.as_object();
  EXPECT_EQ(**get_int(object, "i"), 4);
  EXPECT_EQ(**get_int(object, "w"), 4);
  EXPECT_FALSE(get_int(object, "f").ok());
  EXPECT_FALSE(get_int(object, "n")->has_value());
  EXPECT_FALSE(get_int(object, "missing")->has_value());
  EXPECT_EQ(**get_number(object, "f"), 1.5);
  EXPECT_THAT(get_bool(object, "s").error().message, HasSubstr("'s' is string"));
}

TEST(Json, WritesShortNumbers) {
  const json::value value = {
      {"a", {1, -0.5, 1e-7, 1e300}}, {"b", json::object()}, {"c", json::array()}, {"d\n", "\t"}};
  EXPECT_EQ(write_json(value), R"({"a":[1,-0.5,1e-07,1e+300],"b":{},"c":[],"d\n":"\t"})");
  EXPECT_EQ(write_json(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(write_json(json::value(0.0)), "0");
}

}  // namespace
}  // namespace sluice
