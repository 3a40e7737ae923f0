#include "cli/terminal/input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

// A path of this process alone.
std::string path_of(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / (name + std::to_string(getpid()))).string();
}

TEST(ReadInput, GivesEveryByte) {
  const std::string bytes("a\0\xff\n", 4), path = path_of("sluice_input");
  std::ofstream(path, std::ios::binary) << bytes;
  const Result<std::string> text = read_input(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, bytes);
}

TEST(ReadInput, NamesWhatCannotBeRead) {
  const Result<std::string> absent = read_input(path_of("sluice_absent"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_NE(absent.error().message.find("' cannot be read"), std::string::npos);
  const Result<std::string> folder = read_input(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::Io);
  EXPECT_NE(folder.error().message.find("directory"), std::string::npos) << folder.error().message;
}

TEST(ReadInput, HasALimit) {
  const std::string path = path_of("sluice_large");
  std::ofstream(path, std::ios::binary).close();
  std::filesystem::resize_file(path, kMostInputBytes + 1);
  const Result<std::string> text = read_input(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::LimitExceeded);
}

}  // namespace
}  // namespace sluice::cli
