#include "runtime/device.h"

#include <gtest/gtest.h>

namespace sluice::runtime {
namespace {

TEST(MakeBackend, NamesDevicesItDoesNotKnow) {
  DeviceOptions options;
  options.device = "gpu";
  const auto backend = make_backend(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(backend.error().message.find("'gpu'"), std::string::npos);
}

TEST(MakeBackend, RefusesWhatOnlyCardsHave) {
  for (const char* device : {"cpu", "ref"}) {
    DeviceOptions options;
    options.device = device;
    EXPECT_TRUE(make_backend(options)) << device;
    options.fp8 = true;
    const auto fp8 = make_backend(options);
    ASSERT_FALSE(fp8) << device;
    EXPECT_EQ(fp8.error().code, ErrorCode::Unsupported);
    EXPECT_NE(fp8.error().message.find("--quantize"), std::string::npos);
    options.fp8 = false;
    options.activations = kernels::Activations::BF16;
    EXPECT_FALSE(make_backend(options)) << device;
    options.activations = kernels::Activations::F32;
    EXPECT_TRUE(make_backend(options)) << device;
  }
}

}  // namespace
}  // namespace sluice::runtime
