// Starts that fail for want of a device's memory say what was asked for.
#include <gtest/gtest.h>

#include "rig.h"

namespace sluice::runtime::test {
namespace {

constexpr const char* kFull = "allocation of 4096 bytes of device memory (16 of 32 are free)";

class FullBackend : public AheadBackend {
 public:
  kernels::Weight prepare(kernels::Weight weight) override {
    if (no_weights) throw std::runtime_error(kFull);
    return AheadBackend::prepare(weight);
  }
  kernels::Memory allocate(DType type, std::initializer_list<int64_t> shape) override {
    if (no_memory) throw std::runtime_error(kFull);
    return AheadBackend::allocate(type, shape);
  }
  bool no_weights = false, no_memory = false;
};

TEST(Load, SaysThatTheDeviceIsFull) {
  const auto backend = std::make_shared<FullBackend>();
  backend->no_weights = true;
  const auto model = models::load_model(models::open_model(SLUICE_TEST_DATA "/expert").value(), backend);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::Unavailable);
  EXPECT_NE(model.error().message.find(kFull), std::string::npos) << model.error().message;
}

TEST(Load, SaysThatTheDeviceHasNoRoomForKv) {
  const auto backend = std::make_shared<FullBackend>();
  const auto model =
      models::load_model(models::open_model(SLUICE_TEST_DATA "/expert").value(), backend).value();
  backend->no_memory = true;
  const KvMemoryOptions kv{.block_size = 4, .type = DType::F32, .blocks = {8}};
  const Result<int64_t> room = room_for_kv(*model, kv, {64, 8}, 0.5);
  ASSERT_FALSE(room.ok());
  EXPECT_NE(room.error().message.find(kFull), std::string::npos) << room.error().message;
  EXPECT_NE(room.error().message.find("--gpu-memory 0.5"), std::string::npos) << room.error().message;
  const auto executor = ModelExecutor::make(*model, nullptr, {.memory = kv});
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.error().code, ErrorCode::Unavailable);
  EXPECT_NE(executor.error().message.find(kFull), std::string::npos) << executor.error().message;
}

}  // namespace
}  // namespace sluice::runtime::test
