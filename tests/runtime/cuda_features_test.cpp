// What a GPU's architecture allows: it needs no GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/common/choose_features.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "runtime/device.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kLarge = 227 << 10, kSmall = 99 << 10;

TEST(CudaFeatures, AreThoseOfTheCodeThatRuns) {
  const Features hopper = features_of(90, true, kLarge);
  EXPECT_TRUE(hopper.hopper && hopper.bulk_copies && hopper.early_launch);
  EXPECT_EQ(gemm_arch(hopper), kHopperGemms);
  // Code for sm_80 on an H200, and code for sm_90 without that chip's own instructions.
  const Features old = features_of(80, false, kLarge), plain = features_of(90, false, kLarge);
  EXPECT_FALSE(old.hopper || old.bulk_copies || old.early_launch);
  EXPECT_TRUE(!plain.hopper && plain.bulk_copies);
  for (const Features& features :
       {old, plain, features_of(100, false, kLarge), features_of(120, false, kSmall)})
    EXPECT_EQ(gemm_arch(features), kAnyGemms) << features.arch;
}

TEST(CudaFeatures, OfAnotherArchitectureAreFewer) {
  const Features real = features_of(90, true, kLarge);
  EXPECT_EQ(*features_as(real, 0), real);
  EXPECT_EQ(*features_as(real, 90), real);
  EXPECT_EQ(*features_as(real, 80), features_of(80, false, 163 << 10));
  EXPECT_EQ(*features_as(real, 89), features_of(89, false, kSmall));
  EXPECT_EQ(*features_as(real, 100), features_of(100, false, kLarge));
  EXPECT_EQ(*features_as(real, 120), features_of(120, false, kSmall));
}

TEST(CudaFeatures, CannotBeMoreThanTheCodeHas) {
  const Features old = features_of(80, false, kSmall);
  EXPECT_EQ(features_as(old, 80)->shared_bytes, kSmall);
  for (const int arch : {90, 100, 120}) {
    const auto more = features_as(old, arch);
    ASSERT_FALSE(more) << arch;
    EXPECT_EQ(more.error().code, ErrorCode::Unavailable);
    EXPECT_NE(more.error().message.find("compiled for sm_80"), std::string::npos) << more.error().message;
  }
  const auto unknown = features_as(old, 75);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("--cuda-arch 75"), std::string::npos);
}

TEST(CudaFeatures, SayWhatToBuildForAnotherGpu) {
  EXPECT_EQ(
      no_code_message("NVIDIA A100-SXM4-80GB", 80, "90a"),
      "NVIDIA A100-SXM4-80GB has compute capability 8.0, and this program holds code for 90a: configure "
      "it with -DSLUICE_CUDA_ARCHITECTURES=80 and build it again");
  EXPECT_NE(no_code_message("NVIDIA H100", 90, "100").find("-DSLUICE_CUDA_ARCHITECTURES=90a "),
            std::string::npos);
  const std::string turing = no_code_message("Tesla T4", 75, "80, 90a");
  EXPECT_NE(turing.find("8.0 and later are supported"), std::string::npos);
  EXPECT_EQ(turing.find("SLUICE_CUDA_ARCHITECTURES"), std::string::npos);
}

TEST(CudaFeatures, AreChosenByAnOption) {
  runtime::DeviceOptions device;
  OptionSet options;
  device.declare(options);
  ASSERT_NE(options.find("cuda-arch"), nullptr);
  EXPECT_TRUE(set_value(*options.find("cuda-arch"), "80"));
  EXPECT_EQ(device.cuda_arch, 80);
  EXPECT_FALSE(set_value(*options.find("cuda-arch"), "75"));
  EXPECT_EQ(device.cuda_arch, 80);
}

}  // namespace
}  // namespace sluice::kernels::cuda
