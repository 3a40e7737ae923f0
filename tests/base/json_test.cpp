#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

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

TEST(Json, LimitsTheKeysOfAnObject) {
  const JsonLimits limits{.keys = 3};
  EXPECT_EQ(problem(R"([{"a": 1, "b": 2, "c": 3}, {"d": 4, "e": 5, "f": {"g": 6}}])", limits), "");
  EXPECT_THAT(problem(R"({"a": 1, "b": 2, "c": 3, "d": 4})", limits), HasSubstr("more than 3 keys"));
}

// Keys of 256 bytes that std::hash of libstdc++ gives one value: of every 16 bytes there are two with the same effect.
std::vector<std::string> colliding_keys(size_t count) {
  constexpr uint64_t mul = 0xC6A4A7935BD1E995;
  const auto mix = [](uint64_t word) { return word ^ (word >> 47); };
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - mul * inverse;
  const auto is_plain = [](uint64_t block) {
    for (int i = 0; i < 8; ++i) {
      const auto c = static_cast<unsigned char>(block >> (8 * i));
      if (c < 0x23 || c > 0x7E || c == '\\') return false;
    }
    return true;
  };
  const auto bytes = [](uint64_t block) {
    return std::string(reinterpret_cast<const char*>(&block), sizeof block);
  };
  uint64_t random = 1;
  std::vector<std::string> keys = {""};
  uint64_t state = 0xC70F6907 ^ (256 * mul);
  for (int stage = 0; stage < 16; ++stage) {
    std::vector<std::string> found;
    while (found.size() < 2) {
      uint64_t first = 0;
      for (int i = 0; i < 8; ++i) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        first |= (0x5D + (random >> 33) % 32) << (8 * i);
      }
      const uint64_t middle = (state ^ (mix(first * mul) * mul)) * mul;
      const uint64_t second = mix(middle * inverse) * inverse;  // leads from `middle` to the state 0
      if (is_plain(second)) found.push_back(bytes(first) + bytes(second));
    }
    state = 0;
    std::vector<std::string> longer;
    for (const std::string& key : keys)
      for (const std::string& part : found) longer.push_back(key + part);
    keys = std::move(longer);
    if (stage >= 1 && keys.size() > count) keys.resize(count);
  }
  return keys;
}

TEST(Json, KeysThatWereChosenToCollideAreNoSlowerThanOthers) {
  const auto seconds = [](const std::vector<std::string>& keys) {
    json::object object;
    for (const std::string& key : keys) object[key] = 1;
    const std::string text = json::serialize(object);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t start = std::clock();
      EXPECT_TRUE(parse_json(text, "t").ok());
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return best;
  };
  const std::vector<std::string> hostile = colliding_keys(20'000);
  ASSERT_EQ(hostile.size(), 20'000u);
  for (const std::string& key : hostile)
    ASSERT_EQ(std::hash<std::string>()(key), std::hash<std::string>()(hostile[0]));
  std::vector<std::string> plain;
  for (size_t i = 0; i < hostile.size(); ++i)
    plain.push_back(std::string(248, 'x') + std::to_string(10'000'000 + i));
  EXPECT_LT(seconds(hostile), 10 * seconds(plain) + 0.1);
}

class StopsAtOnce : public Interrupt {
 public:
  Status check() override { return Error{ErrorCode::Unavailable, "stopped"}; }
};

TEST(Json, CanBeStopped) {
  StopsAtOnce interrupt;
  const std::string text = "[" + std::string(1 << 20, ' ') + "1]";
  EXPECT_EQ(problem(text, {.interrupt = &interrupt}), "stopped");
  EXPECT_EQ(problem("[1]", {.interrupt = &interrupt}), "") << "short texts are not worth it";
}

// Slices of a long text end anywhere.
TEST(Json, ReadsLongTexts) {
  std::string text = "{\"a\":[";
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i * 7919) + (i % 3 == 0 ? ",\"\\u00e9x\"," : ",");
  text += "null],\"b\":\"" + std::string(300'000, 'z') + "\"}   ";
  const Result<json::value> value = parse_json(text, "t");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(value->at("b").get_string().size(), 300'000u);
  EXPECT_EQ(value->at("a").as_array().at(2).as_int64(), 7919);
  EXPECT_THAT(problem(text + "x"), HasSubstr("extra data"));
  EXPECT_THAT(problem(text.substr(0, text.size() - 5)), HasSubstr("incomplete"));
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
