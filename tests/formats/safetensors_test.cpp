#include "formats/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/safetensors_cases.h"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

void expect_says(const std::string& message, const std::vector<std::string>& says) {
  if (says.empty()) {
    EXPECT_EQ(message, "");
    return;
  }
  EXPECT_THAT(message, testing::StartsWith("model: "));
  for (const std::string& part : says) EXPECT_THAT(message, HasSubstr(part));
}

class SafetensorsCases : public testing::TestWithParam<Case> {};

TEST_P(SafetensorsCases, IsAnswered) {
  const ExactCopy copy(GetParam().bytes);
  const Result<Safetensors> parsed = parse_safetensors(copy.view(), "model");
  expect_says(problem(parsed), GetParam().says);
  EXPECT_TRUE(!parsed.ok() || views_are_inside(parsed->tensors, copy.view()));
}

class SafetensorsIndexCases : public testing::TestWithParam<Case> {};

TEST_P(SafetensorsIndexCases, IsAnswered) {
  const ExactCopy copy(GetParam().bytes);
  expect_says(problem(parse_safetensors_index(copy.view(), "model")), GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(Prefix, SafetensorsCases, testing::ValuesIn(safetensors_prefix_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Header, SafetensorsCases, testing::ValuesIn(safetensors_header_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Entry, SafetensorsCases, testing::ValuesIn(safetensors_entry_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Layout, SafetensorsCases, testing::ValuesIn(safetensors_layout_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Index, SafetensorsIndexCases, testing::ValuesIn(safetensors_index_cases()),
                         case_name);

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string file = rich_safetensors();
  const Result<Safetensors> parsed = parse_safetensors(file, "model");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_THAT(parsed->metadata, ElementsAre(Pair("format", "pt"), Pair("note", "\xc3\xa9")));
  EXPECT_THAT(parsed->tensors.names(), ElementsAre("a.weight", "deep", "ids", "nibbles", "none", "scalar"));
  EXPECT_EQ(parsed->tensors.total_bytes(), 37);
  EXPECT_EQ(parsed->tensors.find("a.weight")->describe(), "BF16[2, 3]");
  EXPECT_EQ(parsed->tensors.find("scalar")->describe(), "F32[]");
  EXPECT_EQ(parsed->tensors.find("scalar")->elements(), 1);
  EXPECT_EQ(parsed->tensors.find("none")->describe(), "F16[0, 5]");
  EXPECT_EQ(parsed->tensors.find("a.weight")->data, file.data() + file.size() - 37);
}

TEST(Safetensors, WhatAViewCannotExpressIsKeptButNotGiven) {
  const std::string file = rich_safetensors();
  const Result<Safetensors> parsed = parse_safetensors(file, "model");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_THAT(problem(parsed->tensors.find("ids")), HasSubstr("'ids' has type I64"));
  EXPECT_THAT(problem(parsed->tensors.find("nibbles")), HasSubstr("'nibbles' has type F4"));
  EXPECT_THAT(problem(parsed->tensors.find("deep")), HasSubstr("'deep' has type U8 of rank 5"));
  EXPECT_EQ(parsed->tensors.find("deep").error().code, ErrorCode::Unsupported);
  EXPECT_EQ(parsed->tensors.find("absent").error().code, ErrorCode::NotFound);
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file = rich_safetensors();
  for (size_t size = 0; size < file.size(); ++size) {
    const ExactCopy copy(std::string_view(file).substr(0, size));
    ASSERT_THAT(problem(parse_safetensors(copy.view(), "model")), HasSubstr("model: ")) << size;
  }
}

TEST(Safetensors, EveryFlippedBitIsAnsweredInBounds) {
  const std::string file = rich_safetensors();
  for (size_t bit = 0; bit < (file.size() - 37) * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const ExactCopy copy(flipped);
    const Result<Safetensors> parsed = parse_safetensors(copy.view(), "model");
    EXPECT_TRUE(!parsed.ok() || views_are_inside(parsed->tensors, copy.view()));
  }
}

// A shard with these U8[1] tensors.
std::string shard(const std::vector<std::string>& names) {
  std::string header;
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + names[i] + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  return safetensors_file("{" + header + "}", std::string(names.size(), 'x'));
}

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::string_view kIndex =
    R"({"metadata":{"total_size":999},"weight_map":{"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"}})";

TEST(SafetensorsFolder, OpensShardsByIndexOrFolder) {
  const TempFolder folder;
  const std::string index = folder.write(kIndexName, kIndex);
  folder.write("s1.safetensors", shard({"a"}));
  folder.write("s2.safetensors", shard({"c", "b"}));
  for (const std::string& path : {index, folder.path().string()}) {
    const Result<Safetensors> opened = open_safetensors(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_THAT(opened->tensors.names(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(opened->tensors.files().size(), 2u);
  }
}

TEST(SafetensorsFolder, ViewsOutliveTheResultInACopyOfTheStore) {
  const TempFolder folder;
  folder.write("model.safetensors", shard({"a"}));
  TensorStore kept;
  {
    const Result<Safetensors> opened = open_safetensors(folder.path().string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    kept = opened->tensors;
  }
  EXPECT_EQ(*static_cast<const char*>(kept.find("a")->data), 'x');
}

TEST(SafetensorsFolder, EachTensorIsWhereTheIndexSaysExactlyOnce) {
  const TempFolder folder;
  folder.write(kIndexName, kIndex);
  folder.write("s1.safetensors", shard({"a"}));
  const std::string path = folder.path().string();
  EXPECT_THAT(problem(open_safetensors(path)), HasSubstr("s2.safetensors: cannot open"));
  EXPECT_THAT(problem(open_safetensors(path)), HasSubstr("(listed in "));
  folder.write("s2.safetensors", shard({"b"}));
  EXPECT_THAT(problem(open_safetensors(path)),
              HasSubstr("weight_map places in 's2.safetensors' what that file lacks: 1 tensor: 'c'"));
  folder.write("s2.safetensors", shard({"b", "c", "d", "e", "f", "g"}));
  EXPECT_THAT(problem(open_safetensors(path)), HasSubstr("4 tensors: 'd', 'e', 'f', …"));
  folder.write("s2.safetensors", shard({"b", "c", "a"}));
  EXPECT_THAT(problem(open_safetensors(path)),
              HasSubstr("'s2.safetensors' holds what weight_map does not place there: 1 tensor: 'a'"));
}

TEST(SafetensorsFolder, SaysWhatItLookedFor) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  EXPECT_THAT(problem(open_safetensors(path)),
              HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(problem(open_safetensors(path)), HasSubstr("pytorch_model.bin, which is a pickle"));
  EXPECT_THAT(problem(open_safetensors(path + "/absent")), HasSubstr("absent: cannot open: No such file"));
}

}  // namespace
}  // namespace sluice::formats
