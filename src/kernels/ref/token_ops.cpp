// Norms, activations and the other operations of the reference that work on each token alone.
#include <algorithm>
#include <cmath>

#include "kernels/host.h"
#include "kernels/ref/ref_backend.h"

namespace sluice::kernels {

namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double activation_of(Activation activation, double x) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
  switch (activation) {
    case Activation::Silu:
      return x * sigmoid(x);
    case Activation::Gelu:
      return 0.5 * x * (1.0 + std::erf(x * kSqrtHalf));
    case Activation::GeluTanh:
      return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
    case Activation::Relu:
      return std::max(x, 0.0);
    case Activation::Relu2:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::Elu:
      return x > 0 ? x : std::expm1(x);
    case Activation::Sigmoid:
      return sigmoid(x);
    case Activation::Softplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case Activation::Identity:
      return x;
    case Activation::SwigluOai:
      break;
  }
  SLUICE_CHECK(!"SwigluOai needs a gate");
  return 0;
}

double gate_of(Activation activation, double gate, double up) {
  if (activation != Activation::SwigluOai) return activation_of(activation, gate) * up;
  const double limited = std::min(gate, 7.0);
  return limited * sigmoid(1.702 * limited) * (std::clamp(up, -7.0, 7.0) + 1.0);
}

template <class F>
void map_rows(const TensorView& out, const TensorView& x, F f) {
  SLUICE_CHECK_EQ(row_count(out), row_count(x));
  for (int64_t row = 0; row < row_count(x); ++row) {
    const float* from = row_at<float>(x, row);
    float* to = row_at<float>(out, row);
    for (int64_t i = 0; i < x.dim(-1); ++i) to[i] = static_cast<float>(f(static_cast<double>(from[i])));
  }
}

double element_or(const TensorView& vector, int64_t i, double otherwise) {
  return vector.empty() ? otherwise : static_cast<double>(vector.at<float>()[i]);
}

}  // namespace

void RefBackend::rms_norm(TensorView out, TensorView x, TensorView gain, float eps) {
  const int64_t width = x.dim(-1);
  for (int64_t row = 0; row < row_count(x); ++row) {
    const float* from = row_at<float>(x, row);
    float* to = row_at<float>(out, row);
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(from[i]) * from[i];
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(eps));
    for (int64_t i = 0; i < width; ++i)
      to[i] = static_cast<float>(from[i] * factor * element_or(gain, i, 1.0));
  }
}

void RefBackend::layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) {
  const int64_t width = x.dim(-1);
  for (int64_t row = 0; row < row_count(x); ++row) {
    const float* from = row_at<float>(x, row);
    float* to = row_at<float>(out, row);
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += from[i];
    const double mean = sum / static_cast<double>(width);
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(eps));
    for (int64_t i = 0; i < width; ++i) {
      to[i] =
          static_cast<float>((from[i] - mean) * factor * element_or(gain, i, 1.0) + element_or(bias, i, 0.0));
    }
  }
}

void RefBackend::add(TensorView out, TensorView a, TensorView b, float b_scale) {
  const int64_t b_rows = row_count(b);
  SLUICE_CHECK(b_rows == 1 || b_rows == row_count(a));
  for (int64_t row = 0; row < row_count(a); ++row) {
    const float* first = row_at<float>(a, row);
    const float* second = row_at<float>(b, b_rows == 1 ? 0 : row);
    float* to = row_at<float>(out, row);
    for (int64_t i = 0; i < a.dim(-1); ++i) {
      to[i] = static_cast<float>(first[i] + static_cast<double>(b_scale) * second[i]);
    }
  }
}

void RefBackend::copy(TensorView out, TensorView x) {
  map_rows(out, x, [](double value) { return value; });
}

void RefBackend::gate_rows(TensorView x, TensorView gate, Activation activation) {
  SLUICE_CHECK_EQ(row_count(x), row_count(gate));
  for (int64_t row = 0; row < row_count(x); ++row) {
    const double factor = activation_of(activation, *row_at<float>(gate, row));
    float* to = row_at<float>(x, row);
    for (int64_t i = 0; i < x.dim(-1); ++i) to[i] = static_cast<float>(to[i] * factor);
  }
}

void RefBackend::scale(TensorView x, float factor) {
  map_rows(x, x, [factor](double value) { return value * factor; });
}

void RefBackend::softcap(TensorView x, float cap) {
  map_rows(x, x, [cap](double value) { return cap * std::tanh(value / cap); });
}

void RefBackend::clamp(TensorView x, float limit) {
  map_rows(x, x, [limit](double value) { return std::clamp<double>(value, -limit, limit); });
}

void RefBackend::activate(TensorView out, TensorView x, Activation activation) {
  map_rows(out, x, [activation](double value) { return activation_of(activation, value); });
}

void RefBackend::gated(TensorView out, TensorView gate_up, Activation activation) {
  const int64_t inner = out.dim(-1);
  SLUICE_CHECK_EQ(gate_up.dim(-1), 2 * inner);
  for (int64_t row = 0; row < row_count(out); ++row) {
    const float* gate = row_at<float>(gate_up, row);
    float* to = row_at<float>(out, row);
    for (int64_t i = 0; i < inner; ++i)
      to[i] = static_cast<float>(gate_of(activation, gate[i], gate[inner + i]));
  }
}

void RefBackend::rope_angles(TensorView angles, const RaggedBatch& batch, const RopeTable& table) {
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const int64_t row = table.row_of(batch, i);
    const float magnitude = row == 0 ? table.magnitude : table.magnitude_beyond;
    for (int64_t pair = 0; pair < table.pairs(); ++pair) {
      // The angle is rounded to f32, as in the models' training code.
      const auto position = static_cast<float>(table.position_of(batch, i, pair));
      const double angle = position * table.inverse_frequency.at<float>(row)[pair];
      angles.at<float>(i, pair)[0] = static_cast<float>(magnitude * std::cos(angle));
      angles.at<float>(i, pair)[1] = static_cast<float>(magnitude * std::sin(angle));
    }
  }
}

void RefBackend::rope(TensorView x, TensorView angles, RopeStyle style) {
  const int64_t pairs = angles.dim(1);
  SLUICE_CHECK_LE(2 * pairs, x.dim(2));
  const int64_t step = style == RopeStyle::NeoX ? 1 : 2;
  const int64_t partner = style == RopeStyle::NeoX ? pairs : 1;
  for (int64_t row = 0; row < x.dim(0) * x.dim(1); ++row) {
    float* head = x.at<float>(row / x.dim(1), row % x.dim(1));
    const float* angle = angles.at<float>(row / x.dim(1));
    for (int64_t pair = 0; pair < pairs; ++pair) {
      float& first = head[pair * step];
      float& second = head[pair * step + partner];
      const double cosine = angle[2 * pair];
      const double sine = angle[2 * pair + 1];
      const double a = first;
      const double b = second;
      first = static_cast<float>(a * cosine - b * sine);
      second = static_cast<float>(b * cosine + a * sine);
    }
  }
}

}  // namespace sluice::kernels
