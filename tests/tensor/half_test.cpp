// Rounding to the short floats: every code comes back, and what lies between goes to the nearest.
#include "tensor/half.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(E4m3, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(f32_to_e4m3(value) & 0x7f, 0x7f);
    } else {
      EXPECT_EQ(f32_to_e4m3(value), code) << value;
    }
  }
}

TEST(E4m3, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = e4m3_to_f32(static_cast<uint8_t>(code)),
                high = e4m3_to_f32(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(f32_to_e4m3(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, low)), code);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(-middle, -high)), 0x80 | (code + 1));
  }
}

TEST(E4m3, LargeValuesBecomeTheLargest) {
  for (const float value : {449.0f, 464.0f, 500.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(value)), 448.0f);
    EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(-value)), -448.0f);
  }
}

}  // namespace
}  // namespace sluice
