// The seeds of the fuzz targets are the cases of these tests, written to tests/fuzz/corpus. With
// SLUICE_WRITE_CORPUS set the test writes them; without, it fails where one is missing or differs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/formats/gguf_cases.h"
#include "tests/formats/safetensors_cases.h"

namespace sluice::formats {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestSeed = 4096;

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void expect_seeds(const std::string& target, std::initializer_list<std::vector<Case>> lists) {
  const fs::path folder = fs::path(SLUICE_TEST_DATA).parent_path().parent_path() / "fuzz" / "corpus" / target;
  const bool write = std::getenv("SLUICE_WRITE_CORPUS") != nullptr;
  if (write) fs::create_directories(folder);
  for (const std::vector<Case>& cases : lists) {
    for (const Case& seed : cases) {
      if (seed.bytes.size() > kLargestSeed || seed.bytes.empty()) continue;
      if (write) std::ofstream(folder / seed.name, std::ios::binary) << seed.bytes;
      EXPECT_EQ(read_file(folder / seed.name), seed.bytes)
          << folder / seed.name
          << " is not what the tests write; run test_formats with SLUICE_WRITE_CORPUS=1";
    }
  }
}

TEST(FuzzCorpus, HoldsTheGgufCases) {
  expect_seeds("gguf", {gguf_header_cases(), gguf_pair_cases(), gguf_tensor_cases(), gguf_data_cases()});
}

TEST(FuzzCorpus, HoldsTheSafetensorsCases) {
  expect_seeds("safetensors",
               {safetensors_prefix_cases(), safetensors_header_cases(), safetensors_entry_cases(),
                safetensors_layout_cases(), safetensors_index_cases()});
}

}  // namespace
}  // namespace sluice::formats
