// Token-wise operations of every level against the reference, in odd widths and strided views.
#include <cmath>

#include "kernels/ref/ref.h"
#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Activation;
using kernels::Backend;
using kernels::RopeStyle;

// Runs `operation(backend, out, x)` on the reference and on every level, on x of [n, width] inside a wider
// tensor, and compares; also one token alone against the same token in the batch, and one thread against two.
template <class Operation>
void compare(float tolerance, Operation operation, int64_t out_divisor = 1) {
  const auto reference = kernels::make_ref_backend();
  const auto one = cpu_backends(1);
  const auto two = cpu_backends(2);
  for (int64_t width : {int64_t{2}, int64_t{6}, int64_t{34}, int64_t{128}, int64_t{578}}) {
    for (int64_t n : token_counts()) {
      Random random(21);
      const HostTensor wide = random.tensor({n, width + 3}, 2.0f);
      const TensorView x = wide.view.columns(1, 1 + width);
      HostTensor expected = HostTensor::make(DType::F32, {n, width / out_divisor});
      operation(*reference, expected.view, x);
      for (size_t b = 0; b < one.size(); ++b) {
        SCOPED_TRACE(::testing::Message() << one[b]->name() << " width " << width << " n " << n);
        HostTensor out = HostTensor::make(DType::F32, {n, width / out_divisor});
        HostTensor threaded = HostTensor::make(DType::F32, {n, width / out_divisor});
        HostTensor alone = HostTensor::make(DType::F32, {1, width / out_divisor});
        operation(*one[b], out.view, x);
        operation(*two[b], threaded.view, x);
        operation(*one[b], alone.view, x.rows(n - 1, n));
        ASSERT_TRUE(near(out.view, expected.view, tolerance));
        ASSERT_TRUE(same_bits(out.view, threaded.view));
        ASSERT_TRUE(same_bits(out.view.rows(n - 1, n), alone.view));
      }
    }
  }
}

void copy(const TensorView& out, const TensorView& x) {
  for (int64_t i = 0; i < x.dim(0); ++i) std::copy_n(x.at<float>(i), x.dim(1), out.at<float>(i));
}

TEST(TokenWise, RmsNorm) {
  Random random(1);
  const HostTensor gain = random.tensor({578});
  compare(2e-6f, [&](Backend& backend, TensorView out, TensorView x) {
    backend.rms_norm(out, x, gain.view.rows(0, x.dim(1)), 1e-5f);
  });
  compare(2e-6f, [](Backend& backend, TensorView out, TensorView x) { backend.rms_norm(out, x, {}, 1e-6f); });
}

TEST(TokenWise, LayerNorm) {
  Random random(2);
  const HostTensor gain = random.tensor({578});
  const HostTensor bias = random.tensor({578});
  compare(4e-6f, [&](Backend& backend, TensorView out, TensorView x) {
    backend.layer_norm(out, x, gain.view.rows(0, x.dim(1)), bias.view.rows(0, x.dim(1)), 1e-5f);
  });
  compare(4e-6f,
          [](Backend& backend, TensorView out, TensorView x) { backend.layer_norm(out, x, {}, {}, 1e-5f); });
}

TEST(TokenWise, AddScaleSoftcapClamp) {
  Random random(3);
  const HostTensor row = random.tensor({578});
  compare(1e-6f, [](Backend& backend, TensorView out, TensorView x) { backend.add(out, x, x, 0.25f); });
  compare(1e-6f, [&](Backend& backend, TensorView out, TensorView x) {
    backend.add(out, x, row.view.rows(0, x.dim(1)), 1.0f);
  });
  compare(1e-6f, [](Backend& backend, TensorView out, TensorView x) {
    copy(out, x);
    backend.scale(out, 0.3f);
  });
  compare(1e-6f, [](Backend& backend, TensorView out, TensorView x) {
    copy(out, x);
    backend.softcap(out, 1.5f);
  });
  compare(0.0f, [](Backend& backend, TensorView out, TensorView x) {
    copy(out, x);
    backend.clamp(out, 1.25f);
  });
}

TEST(TokenWise, Activations) {
  for (Activation activation :
       {Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Relu2,
        Activation::Elu, Activation::Sigmoid, Activation::Softplus, Activation::Identity}) {
    SCOPED_TRACE(static_cast<int>(activation));
    compare(1e-6f,
            [=](Backend& backend, TensorView out, TensorView x) { backend.activate(out, x, activation); });
    compare(
        2e-6f, [=](Backend& backend, TensorView out, TensorView x) { backend.gated(out, x, activation); }, 2);
  }
  compare(
      2e-6f,
      [](Backend& backend, TensorView out, TensorView x) { backend.gated(out, x, Activation::SwigluOai); },
      2);
}

// Far from zero: limits are reached, nothing overflows.
TEST(TokenWise, ActivationsAtTheEnds) {
  const auto reference = kernels::make_ref_backend();
  std::vector<float> ends{-1e30f, -200,   -104,  -90,  -88.5f, -20,   -1e-3f, -1e-30f,
                          0,      1e-30f, 1e-3f, 0.6f, 20,     88.5f, 200};
  const auto x = TensorView::contiguous(ends.data(), DType::F32, {1, static_cast<int64_t>(ends.size())});
  for (const auto& backend : cpu_backends(1)) {
    for (Activation activation : {Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Relu,
                                  Activation::Elu, Activation::Sigmoid, Activation::Softplus}) {
      HostTensor out = HostTensor::make(DType::F32, {1, x.dim(1)});
      HostTensor expected = HostTensor::make(DType::F32, {1, x.dim(1)});
      backend->activate(out.view, x, activation);
      reference->activate(expected.view, x, activation);
      EXPECT_TRUE(near(out.view, expected.view, 1e-6f))
          << backend->name() << " " << static_cast<int>(activation);
    }
  }
}

TEST(TokenWise, FusedAddRmsNormEqualsItsDefault) {
  Random random(4);
  const HostTensor gain = random.tensor({130});
  for (const auto& backend : cpu_backends(2)) {
    const HostTensor a = random.tensor({9, 130});
    const HostTensor b = random.tensor({9, 130});
    HostTensor fused_sum = HostTensor::make(DType::F32, {9, 130});
    HostTensor sum = HostTensor::make(DType::F32, {9, 130});
    HostTensor fused = HostTensor::make(DType::F32, {9, 130});
    HostTensor plain = HostTensor::make(DType::F32, {9, 130});
    copy(fused_sum.view, a.view);
    copy(sum.view, a.view);
    backend->add_rms_norm(fused.view, {fused_sum.view, b.view, 0.5f}, {gain.view, 1e-5f});
    backend->Backend::add_rms_norm(plain.view, {sum.view, b.view, 0.5f}, {gain.view, 1e-5f});
    EXPECT_TRUE(same_bits(fused.view, plain.view)) << backend->name();
    EXPECT_TRUE(same_bits(fused_sum.view, sum.view)) << backend->name();
  }
}

TEST(TokenWise, CopyAndGateRows) {
  Random random(7);
  const HostTensor gates = random.tensor({33, 1}, 3.0f);
  compare(1e-6f, [&](Backend& backend, TensorView out, TensorView x) {
    backend.copy(out, x);
    EXPECT_TRUE(same_bits(out, x));
    // The same gates for a token alone as in the batch: its last row.
    const TensorView last = out.rows(out.dim(0) - 1, out.dim(0));
    backend.gate_rows(last, gates.view.rows(0, 1));
    backend.gate_rows(last, gates.view.rows(1, 2), Activation::Softplus);
  });
}

TEST(TokenWise, GatherRows) {
  Random random(5);
  const HostTensor x = random.tensor({6, 11});
  const std::vector<int32_t> rows{5, 0, 5, 2};
  const auto reference = kernels::make_ref_backend();
  HostTensor expected = HostTensor::make(DType::F32, {4, 11});
  reference->gather_rows(expected.view, x.view, rows);
  EXPECT_TRUE(same_bits(expected.view.rows(0, 1), x.view.rows(5, 6)));
  for (const auto& backend : cpu_backends(2)) {
    HostTensor out = HostTensor::make(DType::F32, {4, 11});
    backend->gather_rows(out.view, x.view, rows);
    EXPECT_TRUE(same_bits(out.view, expected.view));
  }
}

TEST(Rope, AnglesAndRotationAgree) {
  const auto reference = kernels::make_ref_backend();
  for (const auto& backend : cpu_backends(2)) {
    for (RopeStyle style : {RopeStyle::NeoX, RopeStyle::GptJ}) {
      for (int64_t pairs : {int64_t{1}, int64_t{5}, int64_t{16}}) {
        SCOPED_TRACE(::testing::Message() << backend->name() << " pairs " << pairs);
        Random random(6);
        HostTensor frequencies = HostTensor::make(DType::F32, {3, pairs});
        for (int64_t i = 0; i < 3 * pairs; ++i)
          frequencies.view.at<float>()[i] = std::pow(10000.0f, -float(i) / float(3 * pairs));
        const std::vector<int32_t> begins{0, 4};
        const std::vector<int32_t> positions{0, 1, 77, 131071};
        const std::vector<int32_t> lengths{64, 65, 66, 131072};
        const kernels::RaggedBatch batch{begins, positions, {}, lengths};
        const kernels::RopeTable table{frequencies.view, 64, 1.5f, 1.25f};
        HostTensor angles = HostTensor::make(DType::F32, {4, pairs, 2});
        HostTensor expected_angles = HostTensor::make(DType::F32, {4, pairs, 2});
        backend->rope_angles(angles.view, batch, table);
        reference->rope_angles(expected_angles.view, batch, table);
        ASSERT_TRUE(near(angles.view, expected_angles.view, 1e-6f));
        // Heads wider than the rotated part, inside a wider row.
        const HostTensor x = random.tensor({4, 3 * (2 * pairs + 1) + 2});
        HostTensor rotated = HostTensor::make(DType::F32, {4, x.view.dim(1)});
        HostTensor expected = HostTensor::make(DType::F32, {4, x.view.dim(1)});
        copy(rotated.view, x.view);
        copy(expected.view, x.view);
        backend->rope(rotated.view.columns_as_heads(1, 3, 2 * pairs + 1), expected_angles.view, style);
        reference->rope(expected.view.columns_as_heads(1, 3, 2 * pairs + 1), expected_angles.view, style);
        ASSERT_TRUE(near(rotated.view, expected.view, 1e-6f));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::parity
