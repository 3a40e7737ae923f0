#include "runtime/device.h"

#include <gtest/gtest.h>

namespace sluice::runtime {
namespace {

TEST(ParseDevice, TakesNamesAndTheIndexOfAGpu) {
  EXPECT_TRUE(std::holds_alternative<AutoDevice>(*parse_device("auto")));
  EXPECT_TRUE(std::holds_alternative<CpuDevice>(*parse_device("cpu")));
  EXPECT_TRUE(std::holds_alternative<RefDevice>(*parse_device("ref")));
  const auto index = [](std::string_view text) {
    const Result<DeviceChoice> device = parse_device(text);
    return device ? std::get<CudaDevice>(*device).index : -1;
  };
  EXPECT_EQ(index("cuda"), std::nullopt);
  EXPECT_EQ(index("cuda:0"), 0);
  EXPECT_EQ(index("cuda:9"), 9);
  EXPECT_EQ(index("cuda:12"), 12);
}

TEST(ParseDevice, NamesWhatIsNoDevice) {
  for (const std::string text : {"cuda:x", "cuda:-1", "cuda:-0", "cuda:", "cuda:+1", "cuda: 1", "cuda:1x",
                                 "cuda:1:2", "cuda:99999999999", "cuda0", "CUDA", "cpu:1", "gpu", ""}) {
    const Result<DeviceChoice> device = parse_device(text);
    ASSERT_FALSE(device) << text;
    EXPECT_EQ(device.error().code, ErrorCode::InvalidArgument) << text;
    EXPECT_NE(device.error().message.find("'" + text + "'"), std::string::npos) << device.error().message;
  }
}

TEST(MakeBackend, NamesAGpuThatIsNotThere) {
  const auto gpus = kernels::describe_cuda_devices();
  if (!gpus) GTEST_SKIP() << "no CUDA device: " << gpus.error().message;
  DeviceOptions options;
  options.device = "cuda:" + std::to_string(gpus->size());
  const auto backend = make_backend(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::Unavailable);
  EXPECT_NE(backend.error().message.find(options.device), std::string::npos) << backend.error().message;
  EXPECT_NE(backend.error().message.find(std::to_string(gpus->size()) + " CUDA device"), std::string::npos)
      << backend.error().message;
}

TEST(MakeBackend, NamesDevicesItDoesNotKnow) {
  DeviceOptions options;
  options.device = "gpu";
  const auto backend = make_backend(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(backend.error().message.find("'gpu'"), std::string::npos);
}

TEST(MakeBackend, RefusesWhatOnlyGpusHave) {
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
