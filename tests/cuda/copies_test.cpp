// Copies beside the device's work: what they carry, and that the work does not wait for them.
#include <algorithm>
#include <cstring>

#include "harness.h"

namespace sluice::cuda_test {
namespace {

using kernels::AsyncDevice;

class CopiesTest : public DeviceTest {
 protected:
  // Device memory that holds these values.
  kernels::Memory filled(const std::vector<int32_t>& values) {
    return gpu().upload(TensorView::contiguous(const_cast<int32_t*>(values.data()), DType::I32,
                                               {static_cast<int64_t>(values.size())}));
  }
  std::vector<int32_t> random_values(size_t count) {
    std::vector<int32_t> values(count);
    for (int32_t& value : values) value = below(1 << 30);
    return values;
  }
  std::vector<int32_t> read(const kernels::Memory& memory) {
    std::vector<int32_t> values(static_cast<size_t>(memory.view.elements()));
    gpu().download(TensorView::contiguous(values.data(), DType::I32, {memory.view.elements()}), memory.view);
    return values;
  }
  // Pieces of many sizes, in no order, that do not overlap.
  std::vector<AsyncDevice::Piece> cut(const kernels::Memory& memory) {
    std::vector<AsyncDevice::Piece> pieces;
    auto* data = static_cast<std::byte*>(memory.view.data);
    for (size_t left = static_cast<size_t>(memory.view.bytes()); left > 0;) {
      const size_t bytes = std::min(left, static_cast<size_t>(1 + below(below(2) == 0 ? 100 : 3 << 20)));
      pieces.push_back({data, bytes});
      data += bytes;
      left -= bytes;
    }
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
};

TEST_F(CopiesTest, BringBackWhatTheyTook) {
  const std::vector<int32_t> values = random_values(5 << 20), others = random_values(5 << 20);
  const kernels::Memory memory = filled(values), cover = filled(others);
  const std::vector<AsyncDevice::Piece> pieces = cut(memory);
  const size_t bytes = values.size() * sizeof(int32_t);
  const std::shared_ptr<std::byte> pinned = gpu().allocate_pinned(bytes),
                                   second = gpu().allocate_pinned(bytes);
  gpu().copy_to_host(pinned.get(), pieces);
  // The next work overwrites the pieces at once; then they come back, and go out again.
  const AsyncDevice::Piece whole{memory.view.data, bytes};
  std::memcpy(second.get(), others.data(), bytes);
  gpu().copy_from_host({&whole, 1}, second.get());
  EXPECT_EQ(read(memory), others);
  gpu().copy_from_host(pieces, pinned.get());
  EXPECT_EQ(read(memory), values);
  gpu().copy_to_host(second.get(), {&whole, 1});
  gpu().synchronize();
  EXPECT_FALSE(gpu().copies_pending());
  EXPECT_EQ(std::memcmp(second.get(), values.data(), bytes), 0);
}

// 96 MiB take milliseconds to the host; a sample takes microseconds.
TEST_F(CopiesTest, AreNotWaitedForByTheNextStep) {
  const std::vector<int32_t> values = random_values(24 << 20);
  const kernels::Memory memory = filled(values);
  const size_t bytes = values.size() * sizeof(int32_t);
  const std::shared_ptr<std::byte> pinned = gpu().allocate_pinned(bytes);
  const AsyncDevice::Piece whole{memory.view.data, bytes};
  const Both logits = random(1, 1000);
  const std::vector<kernels::SampleArgs> rows(1);
  int overtaken = 0;
  for (int run = 0; run < 6; ++run) {  // the first loads the kernels; others may use the GPU
    gpu().synchronize();
    gpu().copy_to_host(pinned.get(), {&whole, 1});
    gpu().sample(logits.device, rows, {}, {});
    gpu().wait_sampled(gpu().send_sampled(1));
    overtaken += gpu().copies_pending() ? 1 : 0;
  }
  EXPECT_GT(overtaken, 0);
  gpu().synchronize();
  EXPECT_EQ(std::memcmp(pinned.get(), values.data(), bytes), 0);
}

}  // namespace
}  // namespace sluice::cuda_test
