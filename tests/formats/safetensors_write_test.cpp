// Files made tensor by tensor, and what a call takes up of an earlier one.
#include "formats/safetensors/safetensors_write.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/thread_pool.h"
#include "formats/safetensors/folder_format.h"
#include "formats/safetensors/safetensors.h"
#include "tests/formats/files.h"

namespace sluice::formats {
namespace {

namespace fs = std::filesystem;

std::string written_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Three tensors; `made` counts how many were.
std::vector<WrittenGroup> three_groups(int& made) {
  std::vector<WrittenGroup> groups;
  for (const char* name : {"a", "b", "c"})
    groups.push_back({{{name, "U8", {8}, 8}}, [&made, name]() -> Result<std::vector<std::vector<uint8_t>>> {
                        ++made;
                        return std::vector<std::vector<uint8_t>>{
                            std::vector<uint8_t>(8, static_cast<uint8_t>(name[0]))};
                      }});
  return groups;
}

TEST(WriteSafetensors, TakesUpAPartAndLeavesWhatIsWhole) {
  const TempFolder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  int made = 0;
  const auto ignore = [](const WrittenGroup&, uint64_t) {};
  ASSERT_TRUE(write_safetensors(path, three_groups(made), ignore).ok());
  EXPECT_EQ(made, 3);
  const std::string whole = written_bytes(path);
  ASSERT_TRUE(write_safetensors(path, three_groups(made), ignore).ok());
  EXPECT_EQ(made, 3);  // it was whole
  fs::remove(path);
  std::ofstream(path + ".part", std::ios::binary) << whole.substr(0, whole.size() - 9);  // within "b"
  made = 0;
  ASSERT_TRUE(write_safetensors(path, three_groups(made), ignore).ok());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(written_bytes(path), whole);
  EXPECT_FALSE(fs::exists(path + ".part"));
  const Result<Safetensors> read = open_safetensors(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read->tensors.find("c")->at<uint8_t>(7), 'c');
}

TEST(WriteSafetensors, AFailureLeavesNoFile) {
  const TempFolder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  int made = 0;
  std::vector<WrittenGroup> groups = three_groups(made);
  groups[1].make = [] { return Error{ErrorCode::Corrupt, "b is spoilt"}; };
  const Status status = write_safetensors(path, groups, [](const WrittenGroup&, uint64_t) {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "b is spoilt");
  EXPECT_FALSE(fs::exists(path));
}

TEST(QuantizedModule, SaysWhatItIsBeforeItIsMade) {
  HostTensor weight = HostTensor::make(DType::F32, {16, 64});
  for (int64_t i = 0; i < 16 * 64; ++i) weight.view.at<float>()[i] = static_cast<float>(i % 13) - 6.0f;
  ThreadPool pool(2);
  for (const FolderFormat format :
       {FolderFormat::Fp8, FolderFormat::Int8, FolderFormat::W4A16, FolderFormat::Awq}) {
    const FolderLayout layout{format, 32};
    ASSERT_TRUE(layout.holds(weight.view));
    const WrittenGroup group = quantized_module(layout, "m", weight.view, nullptr, pool);
    const auto made = group.make();
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_EQ(made->size(), group.tensors.size());
    for (size_t i = 0; i < made->size(); ++i)
      EXPECT_EQ((*made)[i].size(), group.tensors[i].bytes) << group.tensors[i].name;
  }
  EXPECT_FALSE((FolderLayout{FolderFormat::W4A16, 128}.holds(weight.view)));
  weight.view.at<float>()[3] = std::numeric_limits<float>::infinity();
  const auto spoilt = quantized_module({FolderFormat::Fp8, 32}, "m", weight.view, nullptr, pool).make();
  ASSERT_FALSE(spoilt.ok());
  EXPECT_NE(spoilt.error().message.find("'m.weight' holds values that are not finite"), std::string::npos)
      << spoilt.error().message;
}

}  // namespace
}  // namespace sluice::formats
