#include "base/system/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

namespace sluice {
namespace {

TEST(File, ReadsRegularFilesWhole) {
  const std::string path = testing::TempDir() + "file_test_regular";
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'000}}) {
    const std::string text(size, 'a');
    std::ofstream(path, std::ios::binary) << text;
    const Result<std::string> read = read_regular_file(path, 100'000);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, text);
  }
  const Result<std::string> large = read_regular_file(path, 99'999);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message, "'" + path + "' is larger than 99999 bytes");
  std::remove(path.c_str());
  const Result<std::string> gone = read_regular_file(path, 10);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::NotFound);
}

TEST(File, RefusesPipesDevicesAndFoldersWithoutWaiting) {
  const std::string path = testing::TempDir() + "file_test_pipe";
  std::remove(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string folder = testing::TempDir();
  for (const std::string& wrong : {path, std::string("/dev/zero"), folder}) {
    const Result<std::string> read = read_regular_file(wrong, 10);
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.error().message, "'" + wrong + "' is not a regular file");
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace sluice
