#include "llm/model_defaults.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "llm/sampling_flags.h"

namespace sluice::llm {
namespace {

using Defaults = request::SamplingDefaults;

class ModelFolder : public testing::Test {
 protected:
  ModelFolder() { std::filesystem::create_directories(folder_); }
  ~ModelFolder() override { std::filesystem::remove_all(root_); }

  Defaults read(const std::string& text) {
    std::ofstream(folder_ / "generation_config.json") << text;
    models::ModelFiles files;
    files.path = folder_.string();
    return model_defaults(files);
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("sluice_defaults_" + std::to_string(getpid()));
  std::filesystem::path folder_ = root_ / "model";
};

TEST_F(ModelFolder, SaysHowItIsSampled) {
  EXPECT_EQ(
      read(R"({"do_sample":true,"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.01,
                     "repetition_penalty":1.05,"eos_token_id":[1,2]})"),
      (Defaults{.temperature = 0.6, .top_p = 0.95, .min_p = 0.01, .repetition_penalty = 1.05, .top_k = 20}));
  EXPECT_EQ(read(R"({"temperature":0.7,"top_p":null})"), (Defaults{.temperature = 0.7}));
  EXPECT_TRUE(read(R"({"eos_token_id":2,"_from_model_config":true})").empty());
}

TEST_F(ModelFolder, WithoutSamplingIsGreedy) {
  EXPECT_EQ(read(R"({"do_sample":false,"temperature":0.6,"top_p":0.9,"repetition_penalty":1.2})"),
            (Defaults{.temperature = 0, .repetition_penalty = 1.2}));
}

TEST_F(ModelFolder, WithSettingsThatCannotBeUsedRunsWithoutThem) {
  for (const char* text : {"", "{", "[]", R"({"temperature":"hot"})", R"({"temperature":-1})",
                           R"({"top_p":7})", R"({"top_k":1.5})", R"({"do_sample":"no"})"})
    EXPECT_TRUE(read(text).empty()) << text;
}

TEST_F(ModelFolder, OfAKnownNameHasWhatItsMakersRecommend) {
  folder_ = root_ / "SmolLM2-360M-Instruct";
  std::filesystem::create_directories(folder_);
  EXPECT_EQ(read(R"({"eos_token_id":2})"), (Defaults{.temperature = 0.2, .top_p = 0.9}));
  EXPECT_EQ(read(R"({"temperature":0.5})"), (Defaults{.temperature = 0.5})) << "its own settings come first";
}

TEST(GgufSettings, AreReadUnderTheirKeys) {
  models::ModelFiles files;
  files.is_gguf = true;
  EXPECT_TRUE(model_defaults(files).empty());
  files.metadata.set("general.basename", std::string_view("SmolLM2"));
  EXPECT_EQ(model_defaults(files), (Defaults{.temperature = 0.2, .top_p = 0.9}));
  files.metadata.set("general.sampling.temp", double{0.7F});
  files.metadata.set("general.sampling.top_p", double{0.8F});
  files.metadata.set("general.sampling.top_k", int64_t{20});
  files.metadata.set("general.sampling.min_p", double{0.05F});
  files.metadata.set("general.sampling.penalty_repeat", double{1.05F});
  EXPECT_EQ(
      model_defaults(files),
      (Defaults{.temperature = 0.7, .top_p = 0.8, .min_p = 0.05, .repetition_penalty = 1.05, .top_k = 20}));
}

TEST(Flags, ComeBeforeTheModelAndTheModelBeforeTheFallback) {
  SamplingFlags flags;
  flags.settle({});
  EXPECT_EQ(flags.chosen, SamplingFlags::kFallback);
  flags = {};
  flags.chosen.top_p = 0.5;
  flags.settle({.temperature = 0.2, .top_p = 0.9});
  EXPECT_EQ(flags.chosen, (Defaults{.temperature = 0.2, .top_p = 0.5}));
}

}  // namespace
}  // namespace sluice::llm
