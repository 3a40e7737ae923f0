#include "request/request.h"

#include <gtest/gtest.h>

namespace sluice::request {
namespace {

TEST(Positions, AreIndicesUnlessTheyAreGiven) {
  const Positions plain;
  EXPECT_EQ(plain.at(0, 17), 17);
  // Two tokens of text and a picture of two by two patches: time, height, width.
  const Positions picture{.sections = 3, .values = {0, 1, 2, 2, 2, 2, 0, 1, 2, 2, 3, 3, 0, 1, 2, 3, 2, 3}};
  EXPECT_EQ(picture.at(0, 5), 2);
  EXPECT_EQ(picture.at(1, 4), 3);
  EXPECT_EQ(picture.at(2, 3), 3);
  for (int section = 0; section < 3; ++section) {
    EXPECT_EQ(picture.at(section, 6), 4) << "what follows counts on from the largest";
    EXPECT_EQ(picture.at(section, 9), 7);
  }
}

TEST(Input, IsValidated) {
  Request request;
  request.prompt = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(validate_input(request).ok());
  request.spans = {{.begin = 0, .end = 2}, {.begin = 2, .end = 5}};
  EXPECT_TRUE(validate_input(request).ok());
  request.spans[1].end = 6;
  EXPECT_FALSE(validate_input(request).ok()) << "the last token is a token";
  request.spans = {{.begin = -1, .end = 2}};
  EXPECT_FALSE(validate_input(request).ok());
  request.spans = {{.begin = 2, .end = 2}};
  EXPECT_FALSE(validate_input(request).ok());
  request.spans.clear();
  request.positions = {2, std::vector<int32_t>(12, 3)};
  EXPECT_TRUE(validate_input(request).ok());
  request.positions.sections = 3;
  EXPECT_EQ(validate_input(request).error().message, "12 positions for 3 sections of 6 tokens");
  request.positions = {1, {0, 1, 2, -3, 4, 5}};
  EXPECT_EQ(validate_input(request).error().message, "position -3; it must be from 0 to 268435456");
}

}  // namespace
}  // namespace sluice::request
