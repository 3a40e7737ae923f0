#include "lab/schemes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "lab/sweep.h"

namespace sluice::lab {
namespace {

std::string tiny_model_folder() {
  return (std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path() / "golden/data/llama").string();
}

llm::SessionOptions tiny_session() {
  llm::SessionOptions session;
  session.model = tiny_model_folder();
  session.needs_tokenizer = false;
  session.engine.device.device = "cpu";
  session.engine.device.threads = 1;
  session.engine.max_seqs = 2;
  session.engine.max_step_tokens = 64;
  session.engine.kv_tokens = 128;
  return session;
}

WorkloadOptions tiny_load() {
  WorkloadOptions load;
  load.requests = 4;
  load.concurrency = 4;
  load.input = *LengthLaw::parse("3-9", "input-len");
  load.output = *LengthLaw::parse("2-6", "output-len");
  return load;
}

TEST(Schemes, EverySchemeAnswersTheWholeWorkload) {
  const SchemeOptions options{.session = tiny_session(), .workload = tiny_load(), .no_cache_requests = 2};
  int seen = 0;
  const auto results = run_schemes(options, [&](const SchemeResult&) { ++seen; });
  ASSERT_TRUE(results.ok()) << results.error().message;
  ASSERT_EQ(results->size(), 15u);
  EXPECT_EQ(seen, 15);
  EXPECT_EQ((*results)[0].requests, 2);
  for (size_t i = 1; i < results->size(); ++i) {
    const SchemeResult& result = (*results)[i];
    EXPECT_EQ(result.requests, 4) << result.name;
    EXPECT_EQ(result.generated, (*results)[1].generated) << result.name;
    EXPECT_GT(result.tokens_per_second(), 0) << result.name;
    EXPECT_FALSE(result.steps.empty()) << result.name;
    EXPECT_EQ(result.padding > 0, result.name.find("padded") != std::string::npos) << result.name;
  }
  const std::string page = schemes_html(*results, "tiny");
  EXPECT_NE(page.find("continuous mixed, prefix cache"), std::string::npos);
  EXPECT_EQ(schemes_json(*results).size(), 15u);
  const std::string picture = schemes_svg(*results);
  for (const char* title : {"static padded", "iteration padded", "continuous mixed", "prefers-color-scheme"})
    EXPECT_NE(picture.find(title), std::string::npos) << title;
}

TEST(Sweep, PointsOfTheFileAreNotRunAgain) {
  const std::string path = testing::TempDir() + "/sluice_sweep.jsonl";
  std::remove(path.c_str());
  SweepOptions options{.session = tiny_session(), .workload = tiny_load(), .limits = {}};
  options.axes = {*SweepAxis::parse("max-seqs=1,2"), *SweepAxis::parse("block-size=8,16")};
  options.results = path;
  const auto first = run_sweep(options, [](const SweepPoint&) {});
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_EQ(first->size(), 4u);
  const auto second = run_sweep(options, [](const SweepPoint&) {});
  ASSERT_TRUE(second.ok());
  // A number read back may differ in its last digit.
  for (size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ((*first)[i].tokens_per_second, (*second)[i].tokens_per_second);
  options.axes = {*SweepAxis::parse("no-such-option=1")};
  EXPECT_FALSE(run_sweep(options, [](const SweepPoint&) {}).ok());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace sluice::lab
