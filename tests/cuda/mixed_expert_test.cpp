// Mixtures on the CUDA back-end against the reference, whose experts differ in type, in a bias or in the order of their columns, as
// folders have them whose configs leave single modules out.
#include "tests/cuda/harness.h"

namespace sluice::cuda_test {
namespace {

using enum DType;
using kernels::ColumnOrder;
using kernels::ExpertBank;
using kernels::Routing;

// One expert's matrices: gate and up, or both in one.
struct Expert {
  std::vector<DType> up;
  DType down;
  bool bias = false;
  std::vector<ColumnOrder> up_orders{}, down_orders{};
};

class MixedExpertTest : public EachActivation {
 protected:
  static constexpr int64_t kDim = 256, kInner = 512;

  struct Banks {
    std::vector<BothWeight> memory;
    ExpertBank host, device;
  };
  Banks make(const std::vector<Expert>& experts) {
    Banks banks;
    const auto add = [&](const std::vector<DType>& types, int64_t rows, int64_t cols, bool bias) {
      banks.memory.push_back(weight(types, rows / std::ssize(types), cols, bias));
      return &banks.memory.back();
    };
    listed_ = true;
    for (const Expert& expert : experts) {
      orders_ = expert.up_orders;
      const BothWeight* up = add(expert.up, 2 * kInner, kDim, expert.bias);
      banks.host.gate_up.push_back(up->host);
      banks.device.gate_up.push_back(up->device);
      orders_ = expert.down_orders;
      const BothWeight* down = add({expert.down}, kDim, kInner, expert.bias);
      banks.host.down.push_back(down->host);
      banks.device.down.push_back(down->device);
    }
    orders_.clear();
    listed_ = false;
    return banks;
  }
  void expect_alike(const Banks& banks, const std::vector<int64_t>& tokens) {
    for (const int64_t n : tokens) {
      Routing routing;
      routing.experts = static_cast<int>(banks.host.down.size());
      routing.used = 2;
      const Both x = random(n, kDim, 0.1f), logits = random(n, routing.experts);
      HostTensor ids = HostTensor::make(I32, {n, routing.used}),
                 weights = HostTensor::make(F32, {n, routing.used});
      const kernels::Memory device_ids = gpu().allocate(I32, {n, routing.used}),
                            device_weights = gpu().allocate(F32, {n, routing.used});
      ref().route(ids.view, weights.view, logits.host, routing);
      gpu().route(device_ids.view, device_weights.view, logits.device, routing);
      Both out = zeros(n, kDim);
      ref().moe_ffn(out.host, x.host, ids.view, weights.view, banks.host);
      gpu().moe_ffn(out.device, x.device, device_ids.view, device_weights.view, banks.device);
      EXPECT_LT(error(out.host, out.device), 2 * tolerance()) << "n " << n;
    }
  }
  // Of `count` columns; an odd step reaches each of a power of two.
  static ColumnOrder order(int64_t count, int64_t step) {
    std::vector<int32_t> columns;
    for (int64_t k = 0; k < count; ++k) columns.push_back(static_cast<int32_t>((step * k + 3) % count));
    return std::make_shared<const std::vector<int32_t>>(columns);
  }
};

TEST_P(MixedExpertTest, OfDifferentTypes) {
  const std::vector<std::vector<Expert>> all{
      {{{Q4_0}, Q4_0}, {{Q4_0}, Q4_0}, {{BF16}, BF16}, {{Q4_0}, Q4_0}},
      {{{Q4_Z, BF16}, Q4_0}, {{Q4_Z, Q4_Z}, F16}, {{Q8_0, Q4_Z}, F32}, {{Q4_Z, BF16}, Q4_0}},
      {{{NF4}, FP4, true}, {{G4_NL}, G4_2}, {{F4_16}, MXFP4, true}, {{Q6_K}, G4_3X, true}},
      {{{BF16}, BF16, true}, {{F16}, F32}, {{F32}, BF16}, {{BF16, F16}, F16, true}},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_alike(make(all[i]), {1, 3, 40, 150, 400});
  }
}

// In each type that a matrix may have on the device, a bias on every second.
TEST_P(MixedExpertTest, OfEveryType) {
  for (const DTypeInfo& type : kDTypes) {
    if (type.type == I8 || type.type == I32 || type.type == U8 || is_file_only(type.type)) continue;
    SCOPED_TRACE(std::string(type.name));
    const Expert plain{{type.type, type.type}, type.type}, biased{{type.type}, type.type, true};
    expect_alike(make({plain, biased, plain, plain}), {1, 40});
    expect_alike(make({plain, plain, plain}), {9, 300});
  }
}

TEST_P(MixedExpertTest, OfOrderedColumns) {
  for (const bool all : {true, false}) {
    for (const bool weigh_inputs : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "all " << all << " weigh inputs " << weigh_inputs);
      std::vector<Expert> experts;
      for (int e = 0; e < 6; ++e) {
        Expert expert{{Q4_0, Q4_0}, Q4_Z, true};
        const ColumnOrder read = order(kDim, 2 * e + 3), other = order(kDim, 2 * e + 77);
        if (all || e % 2 == 0) {
          // Gate and up in orders of their own are kept in bf16.
          expert.up_orders = {read, !all && e == 4 && activations_ == DType::BF16 ? other : read};
          expert.down_orders = {order(kInner, 2 * e + 5)};
        }
        experts.push_back(expert);
      }
      Banks banks = make(experts);
      for (size_t e = 0; e < experts.size(); ++e)  // plain where gate and up differ in their order
        EXPECT_EQ(banks.device.gate_up[e].parts.front().dtype,
                  !all && e == 4 && activations_ == DType::BF16 ? BF16 : Q4_0)
            << e;
      banks.host.weigh_inputs = banks.device.weigh_inputs = weigh_inputs;
      expect_alike(banks, {1, 3, 40, 150, 700});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, MixedExpertTest, kEachActivation, name_of);

}  // namespace
}  // namespace sluice::cuda_test
