// Miniature models of every architecture against reference logits: the folders kept here everywhere, those of
// ../shared where that is there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/golden.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref_backend.h"
#include "models/family.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/scorer.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-3;
constexpr double kGgufTolerance = 2e-3;  // the references are those of the original weights

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> golden_folders(const std::string& folder) {
  std::vector<std::string> folders = entries(folder);
  std::erase_if(folders, [](const std::string& path) { return !fs::exists(path + "/golden.json"); });
  return folders;
}

std::vector<runtime::DeviceOptions> devices() {
  std::vector<runtime::DeviceOptions> all{{.device = "ref"}};
  for (const auto& isa : kernels::available_isa_names())
    all.push_back({.device = "cpu", .isa = std::string(isa), .threads = 2});
  return all;
}

std::unique_ptr<models::Model> load(const std::string& path, std::shared_ptr<kernels::Backend> backend) {
  auto files = models::open_model(path);
  if (!files) {
    ADD_FAILURE() << files.error().message;
    return nullptr;
  }
  auto model = models::load_model(std::move(*files), std::move(backend));
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return std::move(*model);
}

std::unique_ptr<models::Model> load(const std::string& path, const runtime::DeviceOptions& device) {
  auto backend = runtime::make_backend(device);
  if (backend) return load(path, *backend);
  ADD_FAILURE() << backend.error().message;
  return nullptr;
}

void expect_references(const models::Model& model, const std::string& folder, double tolerance) {
  const auto cases = cli::read_golden(folder, model.spec().vocab);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_FALSE(cases->empty());
  for (const cli::GoldenCase& golden : *cases) {
    const auto verdict = cli::judge(model, golden, model.backend->activation_type(), 0);
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_LE(verdict->relative_error, tolerance) << golden.prompt.size() << " tokens";
    EXPECT_EQ(verdict->equal_tokens, verdict->greedy_tokens) << golden.prompt.size() << " tokens";
  }
}

void expect_references(const std::string& path, const std::string& folder, double tolerance) {
  for (const runtime::DeviceOptions& device : devices()) {
    SCOPED_TRACE(fmt::format("{} on {} {}", path, device.device, device.isa));
    const std::unique_ptr<models::Model> model = load(path, device);
    if (model) expect_references(*model, folder, tolerance);
  }
}

std::vector<float> logits(const std::string& folder, const runtime::DeviceOptions& device) {
  const std::unique_ptr<models::Model> model = load(folder, device);
  if (!model) return {};
  const auto cases = cli::read_golden(folder, model->spec().vocab);
  if (!cases || cases->empty()) return {};
  runtime::Scorer scorer(*model, static_cast<int>(cases->back().prompt.size()));
  const auto result = scorer.append(cases->back().prompt);
  return result ? *result : std::vector<float>();
}

void expect_same_bits(const std::string& folder) {
  for (const auto& isa : kernels::available_isa_names()) {
    SCOPED_TRACE(fmt::format("{} on {}", folder, isa));
    const auto one = logits(folder, {.device = "cpu", .isa = std::string(isa), .threads = 1});
    const auto two = logits(folder, {.device = "cpu", .isa = std::string(isa), .threads = 2});
    ASSERT_FALSE(one.empty());
    ASSERT_EQ(one.size(), two.size());
    EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)), 0);
  }
}

// A back-end that wants shared experts beside the routed ones.
class Joining : public kernels::RefBackend {
 public:
  bool joins_shared_experts() const override { return true; }
};

int joined_experts(const models::Model& model) {
  int joined = 0;
  for (const models::LayerWeights& layer : model.weights.layers)
    if (const auto* experts = std::get_if<models::MoeWeights>(&layer.ffn)) joined += experts->joined;
  return joined;
}

const std::string kOwn = SLUICE_TEST_DATA;
const std::string kShared = std::string(SLUICE_SHARED) + "/golden";
const std::string kSharedGguf = std::string(SLUICE_SHARED) + "/golden-gguf";

}  // namespace

TEST(Golden, ATokenWhoseLogitTiesWithTheBestIsAsGood) {
  const std::vector<float> logits{1.0f, -1.0f, 1.0005f, 0.99f};
  EXPECT_EQ(cli::followed_token(logits, 2, 0), 2);
  EXPECT_EQ(cli::followed_token(logits, 0, 1e-3), 0);
  EXPECT_EQ(cli::followed_token(logits, 0, 1e-4), 2);
  EXPECT_EQ(cli::followed_token(logits, 3, 1e-3), 2);
  const std::vector<float> broken{1.0f, std::nanf(""), 2.0f};
  EXPECT_EQ(cli::followed_token(broken, 0, 1e-3), 2);
}

TEST(Golden, OwnFoldersAgreeWithTheirReferences) {
  const std::vector<std::string> folders = golden_folders(kOwn);
  EXPECT_GT(folders.size(), models::architectures().size());  // a miniature of each family, and of variants
  for (const std::string& folder : folders) expect_references(folder, folder, kTolerance);
}

TEST(Golden, SharedExpertsAsExpertsThatEveryTokenUses) {
  for (const std::string& folder : golden_folders(kOwn)) {
    SCOPED_TRACE(folder);
    const auto joining = load(folder, std::make_shared<Joining>());
    if (joining && joined_experts(*joining) > 0) expect_references(*joining, folder, kTolerance);
  }
  const auto apart = load(kOwn + "/deepseek_moe", runtime::DeviceOptions{.device = "ref"}),
             joined = load(kOwn + "/deepseek_moe", std::make_shared<Joining>());
  ASSERT_TRUE(apart && joined);
  EXPECT_EQ(joined_experts(*apart), 0);
  EXPECT_GT(joined_experts(*joined), 0);
}

// The short and the long factors of its rope are tensors of the file.
TEST(Golden, AGgufFileOfLongropeAgreesToo) {
  expect_references(kOwn + "/longrope/longrope.gguf", kOwn + "/longrope", kGgufTolerance);
}

// What llama.cpp's converter made of folders here: its names, keys, reordered heads and folded factors.
TEST(Golden, OwnGgufFilesAgreeWithTheReferencesOfTheirFolders) {
  int checked = 0;
  for (const std::string& path : entries(kOwn + "/gguf")) {
    ++checked;
    expect_references(path, kOwn + "/" + fs::path(path).stem().string(), kGgufTolerance);
  }
  EXPECT_GE(checked, 10);
}

// They are part of every clone.
TEST(Golden, OwnFoldersAreSmall) {
  const auto bytes_of = [](const std::string& folder) {
    uintmax_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
  };
  const uintmax_t towers = bytes_of(kOwn + "/vision");
  EXPECT_LE(bytes_of(kOwn) - towers, uintmax_t{13} << 20);
  EXPECT_LE(towers, uintmax_t{3} << 20);
}

TEST(Golden, OwnFoldersGiveTheSameBitsWithOneAndTwoThreads) {
  for (const std::string& folder : golden_folders(kOwn)) expect_same_bits(folder);
}

TEST(Golden, SharedFoldersAgreeWithTheirReferences) {
  const std::vector<std::string> folders = golden_folders(kShared);
  if (folders.empty()) GTEST_SKIP() << kShared << " is not there";
  for (const std::string& folder : folders) expect_references(folder, folder, kTolerance);
}

TEST(Golden, SharedFoldersGiveTheSameBitsWithOneAndTwoThreads) {
  const std::vector<std::string> folders = golden_folders(kShared);
  if (folders.empty()) GTEST_SKIP() << kShared << " is not there";
  for (const std::string& folder : folders) expect_same_bits(folder);
}

TEST(Golden, SharedGgufFilesAgreeWithTheReferencesOfTheirFolders) {
  int checked = 0;
  for (const std::string& path : entries(kSharedGguf)) {
    if (fs::path(path).extension() != ".gguf") continue;
    ++checked;
    expect_references(path, kShared + "/" + fs::path(path).stem().string(), kGgufTolerance);
  }
  if (checked == 0) GTEST_SKIP() << kSharedGguf << " is not there";
}

}  // namespace sluice
