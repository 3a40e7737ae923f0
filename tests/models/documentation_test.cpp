// docs/models.md says what is true.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf_types.h"
#include "models/family.h"
#include "models/vision/vision.h"

namespace sluice::models {

// The names in backticks in the lines of the table.
std::set<std::string> documented() {
  const auto root = std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path().parent_path();
  std::ifstream file(root / "docs/models.md");
  std::set<std::string> names;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("|")) continue;
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const size_t end = line.find('`', at + 1);
      if (end == std::string::npos) break;
      names.insert(line.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  return names;
}

TEST(Documentation, SaysWhichTypesOfGgufCanBeRun) {
  const auto root = std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path().parent_path();
  std::ifstream file(root / "docs/models.md");
  std::string line, runs, refused;
  while (std::getline(file, line)) {
    if (line.starts_with("Types of GGUF that run:")) runs = line;
    if (line.starts_with("Types of GGUF that do not run:")) refused = line;
  }
  for (const formats::GgmlType& type : formats::kGgmlTypes) {
    const std::string name = "`" + std::string(type.name) + "`";
    EXPECT_EQ(runs.find(name) != std::string::npos, type.dtype.has_value()) << name;
    EXPECT_EQ(refused.find(name) != std::string::npos, !type.dtype.has_value()) << name;
  }
}

TEST(Documentation, ListsEveryArchitectureAndNoOther) {
  std::set<std::string> known;
  for (const Architecture* architecture : architectures()) {
    known.insert(architecture->hugging_face.begin(), architecture->hugging_face.end());
    known.insert(architecture->gguf.begin(), architecture->gguf.end());
  }
  const std::vector<std::string_view> towers = vision_architectures();
  known.insert(towers.begin(), towers.end());
  EXPECT_EQ(documented(), known);
}

}  // namespace sluice::models
