#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/system/thread_turn.h"
#include "image/image.h"

namespace sluice::image {

namespace {

constexpr int kPrecision = 32 - 8 - 2;  // bits of a weight behind the point

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}
double sinc(double x) {
  return x == 0.0 ? 1.0 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi);
}
double lanczos(double x) {
  return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

struct Kernel {
  double (*value)(double);
  double support;
};
Kernel kernel_of(Filter filter) {
  switch (filter) {
    case Filter::Bilinear:
      return {bilinear, 1.0};
    case Filter::Bicubic:
      return {bicubic, 2.0};
    case Filter::Lanczos:
      break;
  }
  return {lanczos, 3.0};
}

// Which inputs make an output, and with what weights.
struct Taps {
  int first = 0;
  std::vector<int> weights;
};

std::vector<Taps> make_taps(int from, int to, const Kernel& kernel) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  std::vector<Taps> all(static_cast<size_t>(to));
  std::vector<double> weights;
  for (int out = 0; out < to; ++out) {
    const double center = (out + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(center - support + 0.5)));
    const int end = std::min(from, static_cast<int>(std::floor(center + support + 0.5)));
    weights.clear();
    double sum = 0;
    for (int i = first; i < end; ++i) {
      weights.push_back(kernel.value((i - center + 0.5) / stretch));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<size_t>(out)];
    taps.first = first;
    for (const double weight : weights) {
      const double fixed = (sum == 0.0 ? weight : weight / sum) * (1 << kPrecision);
      taps.weights.push_back(static_cast<int>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
  }
  return all;
}

uint8_t rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kPrecision, 0, 255));
}

Image resize_rows(const Image& image, int width, const Kernel& kernel) {
  const std::vector<Taps> taps = make_taps(image.width, width, kernel);
  Image out{.width = width, .height = image.height, .rgb = {}};
  out.rgb.resize(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(image.height));
  for (int y = 0; y < image.height; ++y) {
    (void)end_long_turn();
    const uint8_t* from = image.row(y);
    uint8_t* to = out.row(y);
    for (const Taps& tap : taps) {
      int64_t sums[3] = {1 << (kPrecision - 1), 1 << (kPrecision - 1), 1 << (kPrecision - 1)};
      const uint8_t* pixel = from + size_t{3} * static_cast<size_t>(tap.first);
      for (const int weight : tap.weights) {
        for (int c = 0; c < 3; ++c) sums[c] += int64_t{weight} * pixel[c];
        pixel += 3;
      }
      for (const int64_t sum : sums) *to++ = rounded(sum);
    }
  }
  return out;
}

Image resize_columns(const Image& image, int height, const Kernel& kernel) {
  const std::vector<Taps> taps = make_taps(image.height, height, kernel);
  const size_t row_size = size_t{3} * static_cast<size_t>(image.width);
  Image out{.width = image.width, .height = height, .rgb = {}};
  out.rgb.resize(row_size * static_cast<size_t>(height));
  std::vector<int64_t> sums(row_size);
  for (int y = 0; y < height; ++y) {
    (void)end_long_turn();
    const Taps& tap = taps[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 1 << (kPrecision - 1));
    for (size_t i = 0; i < tap.weights.size(); ++i) {
      const uint8_t* from = image.row(tap.first + static_cast<int>(i));
      for (size_t x = 0; x < row_size; ++x) sums[x] += int64_t{tap.weights[i]} * from[x];
    }
    std::transform(sums.begin(), sums.end(), out.row(y), rounded);
  }
  return out;
}

}  // namespace

Image resize(const Image& image, int width, int height, Filter filter) {
  SLUICE_CHECK(width > 0 && height > 0 && image.width > 0 && image.height > 0);
  const Kernel kernel = kernel_of(filter);
  if (width == image.width && height == image.height) return image;
  if (width == image.width) return resize_columns(image, height, kernel);
  if (height < image.height && int64_t{image.height} - height > 2 * (int64_t{image.width} - width))
    return resize_rows(resize_columns(image, height, kernel), width, kernel);
  Image narrowed = resize_rows(image, width, kernel);
  return height == image.height ? narrowed : resize_columns(narrowed, height, kernel);
}

Image crop(const Image& image, int x, int y, int width, int height) {
  SLUICE_CHECK(x >= 0 && y >= 0 && width > 0 && height > 0);
  SLUICE_CHECK(x + width <= image.width && y + height <= image.height);
  Image out{.width = width, .height = height, .rgb = {}};
  out.rgb.resize(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
  for (int i = 0; i < height; ++i)
    std::copy_n(image.row(y + i) + size_t{3} * static_cast<size_t>(x), size_t{3} * static_cast<size_t>(width),
                out.row(i));
  return out;
}

}  // namespace sluice::image
