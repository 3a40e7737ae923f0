// Every script under data/ is a test of its own.
#include "tests/sched/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace sluice::sched::testing {
namespace {

std::vector<std::string> scripts() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(SLUICE_TEST_DATA)) {
    if (file.path().extension() == ".txt") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ScriptTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ScriptTest, Holds) {
  Script().run(std::string(SLUICE_TEST_DATA) + "/" + GetParam() + ".txt");
}

INSTANTIATE_TEST_SUITE_P(Scheduler, ScriptTest, ::testing::ValuesIn(scripts()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::sched::testing
