// Every model file that is shared with the project opens, and says what is known about it.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>

#include "formats/gguf/gguf.h"
#include "formats/safetensors/safetensors.h"

namespace sluice::formats {
namespace {

namespace fs = std::filesystem;

const fs::path kShared = SLUICE_SHARED;

std::vector<fs::path> files_in(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  return files;
}

TEST(SharedFiles, GoldenSafetensorsOpen) {
  const std::vector<fs::path> files = files_in(kShared / "golden", ".safetensors");
  if (files.empty()) GTEST_SKIP() << "no folder " << kShared / "golden";
  for (const fs::path& file : files) {
    const Result<Safetensors> opened = open_safetensors(file.string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_GT(opened->tensors.size(), 0u) << file;
    EXPECT_GT(opened->tensors.total_bytes(), 0) << file;
  }
}

TEST(SharedFiles, GoldenFoldersOpen) {
  if (!fs::exists(kShared / "golden")) GTEST_SKIP() << "no folder " << kShared / "golden";
  const Result<Safetensors> model = open_safetensors((kShared / "golden" / "llama").string());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Result<TensorView> embedding = model->tensors.find("model.embed_tokens.weight");
  ASSERT_TRUE(embedding.ok()) << embedding.error().message;
  EXPECT_EQ(embedding->dtype, DType::BF16);
  EXPECT_EQ(embedding->rank, 2);
}

TEST(SharedFiles, GoldenGgufsOpenAndTheirShapesAreOutermostFirst) {
  const std::vector<fs::path> files = files_in(kShared / "golden-gguf", ".gguf");
  if (files.empty()) GTEST_SKIP() << "no folder " << kShared / "golden-gguf";
  for (const fs::path& file : files) {
    const Result<Gguf> opened = open_gguf(file.string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Result<std::optional<std::string_view>> family =
        opened->metadata.get_string("general.architecture");
    ASSERT_TRUE(family.ok() && family->has_value()) << file;
    const std::string key = std::string(**family) + ".embedding_length";
    const Result<std::optional<int64_t>> width = opened->metadata.get_int(key);
    ASSERT_TRUE(width.ok() && width->has_value()) << file << " " << key;
    const Result<TensorView> embedding = opened->tensors.find("token_embd.weight");
    ASSERT_TRUE(embedding.ok()) << embedding.error().message;
    EXPECT_EQ(embedding->dim(-1), **width) << file;
  }
}

TEST(SharedFiles, VocabularyOnlyGgufsOpenQuickly) {
  const std::vector<fs::path> files = files_in(kShared / "tokenizers", ".gguf");
  if (files.empty()) GTEST_SKIP() << "no folder " << kShared / "tokenizers";
  for (const fs::path& file : files) {
    const std::clock_t start = std::clock();
    const Result<Gguf> opened = open_gguf(file.string());
    const double taken = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->tensors.size(), 0u) << file;
    const Result<const std::vector<std::string_view>*> tokens =
        opened->metadata.get_strings("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens.ok() && *tokens != nullptr) << file;
    EXPECT_GT((*tokens)->size(), 10'000u) << file;
    RecordProperty(file.stem().string(), std::to_string(taken) + " ms");
    EXPECT_LT(taken, 1000.0) << file;  // a few milliseconds of a processor unless sanitized
  }
}

}  // namespace
}  // namespace sluice::formats
