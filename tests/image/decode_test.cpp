// Decoding and resizing against Pillow (tools/make_image_cases.py), and what files may not do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"
#include "image/image.h"

namespace sluice::image {

namespace {

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((have += 6) >= 8) out += static_cast<char>(bits >> (have -= 8) & 0xFF);
  }
  return out;
}

std::string bytes_of(const json::object& object, std::string_view key) {
  const json::string& text = object.at(key).as_string();
  return from_base64({text.data(), text.size()});
}

const json::object& cases() {
  static const json::value all = [] {
    std::ifstream file(std::string(SLUICE_TEST_DATA) + "/cases.json");
    std::ostringstream text;
    text << file.rdbuf();
    auto parsed = parse_json(text.str(), "cases.json", {.depth = 8, .bytes = 1 << 22, .keys = 1 << 16});
    EXPECT_TRUE(parsed.ok());
    return parsed ? *parsed : json::value(json::object());
  }();
  return all.as_object();
}

std::string file_of(std::string_view name) {
  for (const json::value& item : cases().at("decode").as_array())
    if (item.at("name").as_string() == name) return bytes_of(item.as_object(), "file");
  ADD_FAILURE() << "no case " << name;
  return {};
}

int largest_difference(const Image& image, const json::object& expected) {
  const std::string pixels = bytes_of(expected, "rgb");
  if (image.width != expected.at("width").as_int64() || image.height != expected.at("height").as_int64() ||
      image.rgb.size() != pixels.size())
    return 256;
  int most = 0;
  for (size_t i = 0; i < pixels.size(); ++i)
    most = std::max(most, std::abs(image.rgb[i] - static_cast<uint8_t>(pixels[i])));
  return most;
}

}  // namespace

TEST(Decode, EveryFormatGivesPillowsPixels) {
  const json::array& list = cases().at("decode").as_array();
  ASSERT_GE(list.size(), 20u);
  for (const json::value& item : list) {
    const json::object& one = item.as_object();
    SCOPED_TRACE(std::string(one.at("name").as_string()));
    const Result<Image> image = decode_image(bytes_of(one, "file"));
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_LE(largest_difference(*image, one), 1);
  }
}

TEST(Resize, EveryFilterGivesPillowsPixels) {
  const json::object& input = cases().at("resize_input").as_object();
  const std::string pixels = bytes_of(input, "rgb");
  const Image photo{.width = static_cast<int>(input.at("width").as_int64()),
                    .height = static_cast<int>(input.at("height").as_int64()),
                    .rgb = {pixels.begin(), pixels.end()}};
  for (const json::value& item : cases().at("resize").as_array()) {
    const json::object& one = item.as_object();
    const json::string& name = one.at("filter").as_string();
    const Filter filter = name == "bilinear"  ? Filter::Bilinear
                          : name == "bicubic" ? Filter::Bicubic
                                              : Filter::Lanczos;
    const Image resized = resize(photo, static_cast<int>(one.at("width").as_int64()),
                                 static_cast<int>(one.at("height").as_int64()), filter);
    EXPECT_EQ(largest_difference(resized, one), 0)
        << name << " to " << resized.width << " x " << resized.height;
  }
}

TEST(Decode, ABombIsRefusedByItsHeader) {
  // Headers of 60000 x 60000 pixels over a few bytes of content.
  std::string png = file_of("png"), gif = file_of("gif"), jpeg = file_of("jpeg");
  for (size_t i = 0; i < 2; ++i) png.replace(16 + 4 * i, 4, std::string("\0\0\xEA\x60", 4));
  for (size_t i = 0; i < 2; ++i) gif.replace(6 + 2 * i, 2, "\x60\xEA");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i = 0; i < 2; ++i) jpeg.replace(frame + 5 + 2 * i, 2, "\xEA\x60");
  // A changed PNG header has a wrong checksum, which is found first; either way nothing is allocated.
  for (const std::string& file : {png, gif, jpeg}) {
    const Result<Image> image = decode_image(file);
    ASSERT_FALSE(image.ok());
    EXPECT_TRUE(image.error().code == ErrorCode::LimitExceeded || file == png) << image.error().message;
  }
  // Right files under limits that are too small for them.
  for (const char* name : {"jpeg", "jpeg progressive", "png", "webp", "gif"}) {
    const Result<Image> pixels = decode_image(file_of(name), {.pixels = 29 * 19 - 1});
    ASSERT_FALSE(pixels.ok()) << name;
    EXPECT_NE(pixels.error().message.find("29 x 19"), std::string::npos) << pixels.error().message;
    const Result<Image> memory = decode_image(file_of(name), {.memory = 29 * 19 * 2});
    ASSERT_FALSE(memory.ok()) << name;
    EXPECT_EQ(memory.error().code, ErrorCode::LimitExceeded);
  }
  EXPECT_FALSE(decode_image(file_of("png"), {.bytes = 100}).ok());
  for (const char* name : {"png", "jpeg progressive"}) {
    const Result<Image> late = decode_image(file_of(name), {.time = std::chrono::milliseconds(-1)});
    ASSERT_FALSE(late.ok()) << name;
    EXPECT_NE(late.error().message.find("longer"), std::string::npos) << late.error().message;
  }
}

TEST(Decode, DamageIsAnError) {
  EXPECT_FALSE(decode_image("").ok());
  EXPECT_EQ(decode_image("hello, world").error().code, ErrorCode::Unsupported);
  for (const json::value& item : cases().at("decode").as_array()) {
    const std::string file = bytes_of(item.as_object(), "file");
    // Cut anywhere: an error, or the picture of a JPEG whose end is missing; never a fault.
    for (size_t size = 0; size < file.size(); size += 1 + file.size() / 41) {
      const Result<Image> image = decode_image(std::string_view(file).substr(0, size));
      EXPECT_TRUE(!image || image->rgb.size() == size_t{3} * 29 * 19);
    }
    std::string flipped = file;
    for (size_t at = 0; at < file.size(); at += 1 + file.size() / 97) {
      flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
      (void)decode_image(flipped, {.pixels = 1 << 20});
      flipped[at] = file[at];
    }
  }
}

}  // namespace sluice::image
