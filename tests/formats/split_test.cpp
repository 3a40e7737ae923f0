#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf/gguf.h"
#include "tests/formats/files.h"
#include "tests/formats/gguf_writer.h"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One part of a split, with one tensor.
std::string part(uint16_t number, uint16_t count, std::string_view tensor, int32_t tensors = 2) {
  GgufWriter writer;
  writer.pair("split.no", gguf_type::U16, raw(number)).pair("split.count", gguf_type::U16, raw(count));
  writer.pair("split.tensors.count", gguf_type::I32, raw(tensors));
  return writer.tensor(tensor, {4}, ggml_type::F32, 16).finish();
}

TEST(GgufSplit, OpensAllPartsFromTheFirst) {
  const TempFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b"));
  const Result<Gguf> opened = open_gguf(first);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->tensors.names(), ElementsAre("a", "b"));
  EXPECT_EQ(opened->tensors.files().size(), 2u);
}

TEST(GgufSplit, AFileThatIsAllOfItsSplitNeedsNoName) {
  const TempFolder folder;
  EXPECT_EQ(problem(open_gguf(folder.write("m.gguf", part(0, 1, "a", 1)))), "");
}

TEST(GgufSplit, NamesTheFirstPartWhereAnotherIsOpened) {
  const TempFolder folder;
  EXPECT_THAT(problem(open_gguf(folder.write("m-00002-of-00002.gguf", part(1, 2, "b")))),
              HasSubstr("is part 2 of 2, open the first one (its name ends in '-00001-of-00002.gguf')"));
}

TEST(GgufSplit, RefusesARenamedFirstPart) {
  const TempFolder folder;
  EXPECT_THAT(problem(open_gguf(folder.write("m.gguf", part(0, 2, "a")))),
              HasSubstr("is the first of 2 parts, its name must end in '-00001-of-00002.gguf'"));
}

TEST(GgufSplit, NamesAMissingPart) {
  const TempFolder folder;
  const Result<Gguf> opened = open_gguf(folder.write("m-00001-of-00002.gguf", part(0, 2, "a")));
  EXPECT_THAT(problem(opened), HasSubstr("m-00002-of-00002.gguf: cannot open"));
  EXPECT_EQ(opened.error().code, ErrorCode::NotFound);
}

TEST(GgufSplit, PartsMustAgree) {
  const TempFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  folder.write("m-00002-of-00002.gguf", part(0, 2, "b"));
  EXPECT_THAT(problem(open_gguf(first)),
              HasSubstr("'split.no' is 0 and 'split.count' is 2, must be 1 and 2"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  EXPECT_THAT(problem(open_gguf(first)), HasSubstr("tensor 'a' is also in"));
  folder.write("m-00001-of-00002.gguf", part(0, 2, "a", 3));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b", 3));
  EXPECT_THAT(problem(open_gguf(first)),
              HasSubstr("'split.tensors.count' is 3, the parts of the split have 2"));
}

TEST(GgufSplit, NumbersAreInRange) {
  const TempFolder folder;
  EXPECT_THAT(problem(open_gguf(folder.write("m.gguf", part(2, 2, "a")))),
              HasSubstr("'split.no' is 2 and 'split.count' is 2, must be below the count"));
  GgufWriter writer;
  writer.text("split.count", "two");
  EXPECT_THAT(problem(open_gguf(folder.write("t.gguf", writer.finish()))),
              HasSubstr("'split.count' is the string 'two', must be an integer"));
}

}  // namespace
}  // namespace sluice::formats
