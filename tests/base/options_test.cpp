#include "base/options.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

enum class Colour : uint8_t { Red, Blue };

struct Target {
  bool loud = false;
  int size = 3;
  uint64_t seed = 0;
  double heat = 1;
  std::optional<int> limit;
  std::string name;
  std::vector<std::string> stop;
  Colour colour = Colour::Red;

  OptionSet set() {
    OptionSet out;
    out.add(loud, "loud", "");
    out.add(size, "max-size", "").within(1, 10);
    out.add(seed, "seed", "");
    out.add(heat, "temperature", "").also("temp").within(0, 2);
    out.add(limit, "limit", "");
    out.add(name, "name", "");
    out.add(stop, "stop", "");
    out.add_choice<Colour>(colour, "colour", "", {{"red", Colour::Red}, {"blue", Colour::Blue}});
    return out;
  }
  Status apply(const std::vector<std::string>& settings) { return set_values(set(), settings); }
};

TEST(Options, ValuesReachTheirTargets) {
  Target target;
  ASSERT_TRUE(target.apply({"loud=on", "max_size=10", "seed=12", "temp=0.25", "limit=7", "name=a=b", "stop=x",
                            "stop=", "colour=blue"}));
  EXPECT_TRUE(target.loud);
  EXPECT_EQ(target.size, 10);
  EXPECT_EQ(target.seed, 12U);
  EXPECT_EQ(target.heat, 0.25);
  EXPECT_EQ(target.limit, 7);
  EXPECT_EQ(target.name, "a=b");
  EXPECT_EQ(target.stop, (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(target.colour, Colour::Blue);
}

TEST(Options, WrongValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"loud", "not NAME=VALUE"},
      {"loud=yes", "on or off"},
      {"max-size=11", "1 to 10"},
      {"max-size=2.5", "whole number"},
      {"max-size=", "a number"},
      {"seed=-1", "bits"},
      {"limit=4e9", "bits"},
      {"temperature=nan", "a number"},
      {"colour=green", "red, blue"},
      {"tempreature=1", "temperature"},
      {"x=1", "known are: loud, max-"},
  };
  for (const auto& [setting, expected] : cases) {
    Target target;
    const Status status = target.apply({setting});
    ASSERT_FALSE(status.ok()) << setting;
    EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(status.error().message.find(expected), std::string::npos) << status.error().message;
    EXPECT_EQ(target.size, 3);
  }
}

}  // namespace
}  // namespace sluice
