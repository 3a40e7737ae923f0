#include "formats/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "formats/gguf/gguf.h"
#include "formats/mapped_pages.h"
#include "formats/quote.h"
#include "formats/safetensors/safetensors.h"
#include "tests/formats/files.h"
#include "tests/formats/gguf_writer.h"

namespace sluice::formats {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPointer =
    "version https://git-lfs.example/spec/v1\noid sha256:4d7a214614ab2935\nsize 98362432\n";

TEST(MappedFile, GivesTheBytes) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("x", "hello"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->bytes(), "hello");
}

void set_later(const std::string& path) {
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(2));
}

TEST(MappedFile, NoticesThatItWasWrittenTo) {
  const TempFolder folder;
  for (const size_t size : {size_t{5}, size_t{5} << 20}) {
    for (const size_t at : {size_t{0}, size / 2 / 64 * 64, size - 1}) {
      const std::string path = folder.write("x", std::string(size, 'a'));
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file.ok()) << file.error().message;
      EXPECT_FALSE((*file)->changed());
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<long>(at))
          << std::string(std::min(size - at, size_t{8192}), 'b');
      set_later(path);  // a write within the clock's tick
      EXPECT_TRUE((*file)->changed()) << size << " at " << at;
      EXPECT_TRUE((*file)->changed()) << size << " at " << at;
    }
  }
}

TEST(MappedFile, IsTheSameWhereOnlyItsTimeChanged) {
  const TempFolder folder;
  const std::string path = folder.write("x", std::string(size_t{3} << 20, 'a'));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  set_later(path);
  EXPECT_FALSE((*file)->changed());
  EXPECT_FALSE((*file)->changed());
  std::filesystem::resize_file(path, (size_t{3} << 20) + 1);
  EXPECT_TRUE((*file)->changed());
}

// Pages of this process that are in memory.
int64_t resident_pages() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

TEST(MappedPages, ReleasedOnesLeaveMemoryAndComeBack) {
  const TempFolder folder;
  const size_t size = size_t{32} << 20;
  const auto file = MappedFile::open(folder.write("x", std::string(size, 'a')));
  ASSERT_TRUE(file.ok()) << file.error().message;
  TensorStore store;
  store.keep(*file);
  const auto view = TensorView::contiguous(const_cast<char*>((*file)->bytes().data()) + 100, DType::U8,
                                           {static_cast<int64_t>(size) - 200});
  const auto count = [&] { return std::count((*file)->bytes().begin(), (*file)->bytes().end(), 'a'); };
  EXPECT_EQ(count(), static_cast<int64_t>(size));
  const int64_t before = resident_pages();
  release_pages(store, view);
  EXPECT_LT(resident_pages(), before - (int64_t{24} << 20) / ::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(count(), static_cast<int64_t>(size));
}

TEST(MappedPages, OtherMemoryIsLeftAlone) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("x", "hello"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  TensorStore store;
  store.keep(*file);
  std::string own(size_t{1} << 20, 'a');
  release_pages(store, TensorView::contiguous(own.data(), DType::U8, {int64_t{1} << 20}));
  EXPECT_EQ(std::count(own.begin(), own.end(), 'a'), int64_t{1} << 20);
}

TEST(MappedFile, LivesOnWhereItIsReplacedOrRemoved) {
  const TempFolder folder;
  const std::string path = folder.write("x", "hello");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::filesystem::rename(folder.write("y", "another"), path);
  EXPECT_FALSE((*file)->changed());
  std::filesystem::remove(path);
  EXPECT_FALSE((*file)->changed());
  EXPECT_EQ((*file)->bytes(), "hello");
}

TEST(AboutFile, NamesTheFileOnce) {
  EXPECT_EQ(about_file("a/b", {ErrorCode::Corrupt, "is short"}).message, "a/b: is short");
  EXPECT_EQ(about_file("a/b", {ErrorCode::Corrupt, "a/b: is short"}).message, "a/b: is short");
}

TEST(MappedFile, RefusesWhatIsNotAFileWithoutWaiting) {
  const TempFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(problem(MappedFile::open(pipe)), HasSubstr("pipe: is a pipe, must be a regular file"));
  EXPECT_THAT(problem(MappedFile::open(folder.path().string())),
              HasSubstr("is a folder, must be a regular file"));
  EXPECT_EQ(problem(MappedFile::open("/dev/zero")), "/dev/zero: is a device, must be a regular file");
}

TEST(MappedFile, NamesWhatIsMissing) {
  const TempFolder folder;
  const auto missing = MappedFile::open((folder.path() / "absent").string());
  EXPECT_THAT(problem(missing), HasSubstr("absent: cannot open: No such file"));
  EXPECT_EQ(missing.error().code, ErrorCode::NotFound);
}

TEST(MappedFile, NamesWhatIsForbidden) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TempFolder folder;
  const std::string secret = folder.write("secret", "x");
  ASSERT_EQ(::chmod(secret.c_str(), 0), 0);
  EXPECT_EQ(MappedFile::open(secret).error().code, ErrorCode::Io);
}

TEST(MappedFile, ReadersNameEmptyFilesAndLfsPointers) {
  const TempFolder folder;
  const std::string empty = folder.write("empty", "");
  const std::string pointer = folder.write("pointer", kPointer);
  for (const std::string& message : {problem(open_gguf(empty)), problem(open_safetensors(empty))}) {
    EXPECT_THAT(message, HasSubstr("empty: is empty (0 bytes"));
  }
  for (const std::string& message : {problem(open_gguf(pointer)), problem(open_safetensors(pointer))}) {
    EXPECT_THAT(message, HasSubstr("pointer: is a git-lfs pointer of 82 bytes"));
    EXPECT_THAT(message, HasSubstr("not the file of 98362432 bytes"));
  }
  const std::string index = folder.write("model.safetensors.index.json", kPointer);
  EXPECT_THAT(problem(open_safetensors(index)), HasSubstr("is a git-lfs pointer"));
}

char touch(const std::string& path) {
  install_fault_handler();
  const auto file = MappedFile::open(path);
  if (!file.ok() || ::truncate(path.c_str(), 1) != 0) return 0;
  const volatile char* last = (*file)->bytes().data() + (*file)->bytes().size() - 1;
  return *last;
}

TEST(MappedFileDeathTest, TruncationUnderTheMappingIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", std::string(1 << 20, 'x'));
  EXPECT_EXIT(touch(path), testing::ExitedWithCode(74), "model file .*model.gguf changed on disk");
}

TEST(MappedFileDeathTest, OtherBusErrorsKeepTheirMeaning) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto raise_plain = [] {
    ::signal(SIGBUS, SIG_DFL);
    install_fault_handler();
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(raise_plain(), testing::KilledBySignal(SIGBUS), "");
}

TEST(Quote, ShowsTextThatCannotHarmATerminal) {
  EXPECT_EQ(quote("blk.0.x"), "'blk.0.x'");
  EXPECT_EQ(quote("a\x1b[2J\x7f"), "'a\\x1b[2J\\x7f'");
  EXPECT_EQ(quote("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), "'\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80'");
  EXPECT_EQ(quote("\xc2\x9b"), "'\\xc2\\x9b'");                    // a control of the C1 set
  EXPECT_EQ(quote("\xc0\x80"), "'\\xc0\\x80'");                    // overlong
  EXPECT_EQ(quote("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");           // surrogate
  EXPECT_EQ(quote("\xf4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");  // above U+10FFFF
  EXPECT_EQ(quote("\xe2\x82"), "'\\xe2\\x82'");                    // cut
  EXPECT_EQ(quote(std::string(81, 'x')), "'" + std::string(80, 'x') + "'… (81 bytes)");
}

}  // namespace
}  // namespace sluice::formats
