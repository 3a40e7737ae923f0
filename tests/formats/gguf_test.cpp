#include "formats/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/gguf_cases.h"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GgufCases : public testing::TestWithParam<Case> {};

TEST_P(GgufCases, IsAnswered) {
  const ExactCopy copy(GetParam().bytes);
  const Result<Gguf> parsed = parse_gguf(copy.view(), "model.gguf");
  if (GetParam().says.empty()) {
    EXPECT_EQ(problem(parsed), "");
    EXPECT_TRUE(!parsed.ok() || views_are_inside(parsed->tensors, copy.view()));
    return;
  }
  EXPECT_THAT(problem(parsed), testing::StartsWith("model.gguf: "));
  for (const std::string& part : GetParam().says) EXPECT_THAT(problem(parsed), HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(Header, GgufCases, testing::ValuesIn(gguf_header_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Pairs, GgufCases, testing::ValuesIn(gguf_pair_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Tensors, GgufCases, testing::ValuesIn(gguf_tensor_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Data, GgufCases, testing::ValuesIn(gguf_data_cases()), case_name);

TEST(Gguf, ReadsEveryKindOfValue) {
  const std::string file = rich_gguf().finish();
  const Result<Gguf> parsed = parse_gguf(file, "model.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->version, 3);
  const GgufMetadata& values = parsed->metadata;
  EXPECT_EQ(values.get_int("u8").value(), 255);
  EXPECT_EQ(values.get_int("i8").value(), -128);
  EXPECT_EQ(values.get_int("u16").value(), 65535);
  EXPECT_EQ(values.get_int("i16").value(), -32768);
  EXPECT_EQ(values.get_int("u32").value(), 4294967295);
  EXPECT_EQ(values.get_int("i32").value(), -5);
  EXPECT_EQ(values.get_int("u64").value(), 7);
  EXPECT_EQ(values.get_int("i64").value(), -7);
  EXPECT_EQ(values.get_number("f32").value(), 1.5);
  EXPECT_EQ(values.get_number("f64").value(), -2.25);
  EXPECT_EQ(values.get_number("i32").value(), -5.0);
  EXPECT_EQ(values.get_number("u64.large").value(), 18446744073709551616.0);
  EXPECT_EQ(values.get_bool("yes").value(), true);
  EXPECT_EQ(values.get_bool("no").value(), false);
  EXPECT_EQ(values.get_string("general.architecture").value(), "llama");
  EXPECT_THAT(*values.get_strings("strings").value(), ElementsAre("a", "", "\xff\x01"));
  EXPECT_THAT(*values.get_ints("ints").value(), ElementsAre(-1, 2));
  EXPECT_THAT(*values.get_ints("bools").value(), ElementsAre(0, 1));
  EXPECT_THAT(*values.get_numbers("floats").value(), ElementsAre(0.5, -0.5));
  EXPECT_TRUE(values.get_strings("nothing").value()->empty());
}

TEST(Gguf, LookUpsTellMissingFromWrong) {
  const std::string file = rich_gguf().finish();
  const Result<Gguf> parsed = parse_gguf(file, "model.gguf");
  ASSERT_TRUE(parsed.ok());
  const GgufMetadata& values = parsed->metadata;
  EXPECT_EQ(values.get_int("absent").value(), std::nullopt);
  EXPECT_EQ(values.get_string("absent").value(), std::nullopt);
  EXPECT_EQ(values.get_strings("absent").value(), nullptr);
  EXPECT_EQ(problem(values.get_int("general.architecture")),
            "'general.architecture' is the string 'llama', must be an integer below 2^63");
  EXPECT_EQ(problem(values.get_int("u64.large")),
            "'u64.large' is 18446744073709551615, must be an integer below 2^63");
  EXPECT_EQ(problem(values.get_int("f32")), "'f32' is the float 1.5, must be an integer below 2^63");
  EXPECT_EQ(problem(values.get_int("ints")),
            "'ints' is an array of 2 integers, must be an integer below 2^63");
  EXPECT_EQ(problem(values.get_number("yes")), "'yes' is true, must be a number");
  EXPECT_EQ(problem(values.get_bool("u8")), "'u8' is 255, must be true or false");
  EXPECT_EQ(problem(values.get_string("u8")), "'u8' is 255, must be a string");
  EXPECT_EQ(problem(values.get_ints("strings")),
            "'strings' is an array of 3 strings, must be an array of integers");
  EXPECT_EQ(problem(values.get_numbers("ints")),
            "'ints' is an array of 2 integers, must be an array of floats");
  EXPECT_EQ(problem(values.get_strings("floats")),
            "'floats' is an array of 2 floats, must be an array of strings");
}

TEST(Gguf, TensorsAreOutermostFirstAndPointAtTheirBytes) {
  const std::string file = rich_gguf().finish();
  const Result<Gguf> parsed = parse_gguf(file, "model.gguf");
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->tensors.names(), ElementsAre("block.weight", "odd.weight", "plain.weight"));
  EXPECT_EQ(parsed->tensors.total_bytes(), 24 + 136 + 36);
  const TensorView plain = parsed->tensors.find("plain.weight").value();
  EXPECT_EQ(plain.describe(), "F32[2, 3]");
  EXPECT_TRUE(plain.is_contiguous());
  const TensorView block = parsed->tensors.find("block.weight").value();
  EXPECT_EQ(block.describe(), "Q8_0[2, 64]");
  EXPECT_EQ(static_cast<const char*>(block.data) - static_cast<const char*>(plain.data), 32);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(static_cast<const char*>(plain.data)[i], i);
}

TEST(Gguf, TypesWithoutKernelsAreKeptButNotGiven) {
  const std::string file = rich_gguf().finish();
  const Result<Gguf> parsed = parse_gguf(file, "model.gguf");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->tensors.contains("odd.weight"));
  const Result<TensorView> odd = parsed->tensors.find("odd.weight");
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::Unsupported);
  EXPECT_THAT(odd.error().message, HasSubstr("'odd.weight' has type Q1_0"));
  const Result<TensorView> absent = parsed->tensors.find("absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
}

TEST(Gguf, EveryTruncationIsAnError) {
  GgufWriter writer = rich_gguf();
  writer.pad_last = false;
  const std::string file = writer.finish();
  ASSERT_TRUE(parse_gguf(file, "model.gguf").ok());
  for (size_t size = 0; size < file.size(); ++size) {
    const ExactCopy copy(std::string_view(file).substr(0, size));
    ASSERT_THAT(problem(parse_gguf(copy.view(), "model.gguf")), HasSubstr("model.gguf: ")) << size;
  }
}

TEST(Gguf, EveryFlippedBitIsAnsweredInBounds) {
  const GgufWriter writer = rich_gguf();
  const std::string file = writer.finish();
  for (size_t bit = 0; bit < writer.header().size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const ExactCopy copy(flipped);
    const Result<Gguf> parsed = parse_gguf(copy.view(), "model.gguf");
    EXPECT_TRUE(!parsed.ok() || views_are_inside(parsed->tensors, copy.view()));
  }
}

TEST(Gguf, ArraysTogetherAreLimited) {
  GgufWriter writer;
  const std::string elements(9 << 20, '\0');
  writer.array("first", gguf_type::U8, elements.size(), elements);
  writer.array("second", gguf_type::U8, elements.size(), elements);
  EXPECT_THAT(problem(parse_gguf(writer.finish(), "model.gguf")),
              HasSubstr("key 'second' has 9437184 elements, limit 7340032 (of 16777216 for all arrays)"));
}

}  // namespace
}  // namespace sluice::formats
