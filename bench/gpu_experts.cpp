// Times the feed-forward of mixtures on the CUDA back-end, next to its floor: the matrices of all experts that are used
// from memory, or the operations, at the rates of bench_gpu.
//   bench_gpu_experts [bf16] [weights=TYPE] [mixtral | qwen3 | qwen3.5 | v2-lite | gpt-oss] [tokens...]
// bf16: activations, which are f32 as mixtures have them unless it is given. TYPE: of the matrices, such as Q4_K; bf16 unless given.
// Two layers take turns, so that the L2 holds no weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "gpu_bench.h"
#include "kernels/cuda/cuda.h"
#include "tensor/half.h"

namespace {

using namespace sluice;
using bench::kBytesPerSecond;
using bench::kOperationsPerSecond;
using bench::seconds;
using kernels::CudaBackend;
using kernels::ExpertBank;
using kernels::Memory;
using kernels::Weight;

struct Shape {
  std::string_view name;
  int experts, used;
  int64_t dim, inner;
};
constexpr std::array<Shape, 5> kShapes{{{"mixtral", 8, 2, 4096, 14336},
                                        {"qwen3", 128, 8, 2048, 768},
                                        {"qwen3.5", 256, 8, 2048, 512},
                                        {"v2-lite", 64, 6, 2048, 1408},
                                        {"gpt-oss", 128, 4, 2880, 2880}}};

// Bytes of matrices with small numbers, of bf16 or any packed type.
std::vector<uint8_t> random_values(DType type, size_t bytes) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<uint8_t> values(bytes);
  for (size_t i = 0; i < bytes; i += 2) {
    uint16_t pair = 0;
    if (i >= 131072) {
      std::memcpy(&pair, &values[(i * 2654435761u >> 9) & 131070], 2);
    } else {
      // Scales in f16 have their exponent in the upper bits of a byte: these are below one.
      pair = type == DType::BF16 ? f32_to_bf16(normal(engine)) : static_cast<uint16_t>(engine() & 0x3b3b);
    }
    std::memcpy(&values[i], &pair, 2);
  }
  return values;
}

class Layer {
 public:
  Layer(CudaBackend& gpu, const Shape& s, DType type) {
    std::vector<uint8_t> values =
        random_values(type, static_cast<size_t>(2 * s.inner * row_bytes(type, s.dim)));
    for (int e = 0; e < s.experts; ++e) {
      bank.gate_up.push_back(weight(gpu, values, type, 2 * s.inner, s.dim));
      bank.down.push_back(weight(gpu, values, type, s.dim, s.inner));
    }
  }
  ExpertBank bank;

 private:
  static Weight weight(CudaBackend& gpu, std::vector<uint8_t>& values, DType type, int64_t rows,
                       int64_t cols) {
    Weight w;
    w.parts = {TensorView::contiguous(values.data(), type, {rows, cols})};
    w.rows = rows;
    w.cols = cols;
    return gpu.prepare(std::move(w));
  }
};

Memory random_tokens(CudaBackend& gpu, DType type, int64_t n, int64_t columns) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  HostTensor host = HostTensor::make(type, {n, columns});
  for (int64_t i = 0; i < n * columns; ++i) {
    if (type == DType::F32) {
      host.view.at<float>()[i] = normal(engine);
    } else {
      host.view.at<uint16_t>()[i] = f32_to_bf16(normal(engine));
    }
  }
  return gpu.upload(host.view);
}

void time_shape(CudaBackend& gpu, const Shape& s, DType type, DType activations,
                const std::vector<int64_t>& tokens) {
  std::vector<Layer> layers;
  for (int i = 0; i < 2; ++i) layers.emplace_back(gpu, s, type);
  const int64_t most = *std::max_element(tokens.begin(), tokens.end());
  const Memory x = random_tokens(gpu, activations, most, s.dim),
               logits = random_tokens(gpu, activations, most, s.experts);
  const Memory out = gpu.allocate(activations, {most, s.dim});
  const Memory ids = gpu.allocate(DType::I32, {most, s.used}),
               weights = gpu.allocate(DType::F32, {most, s.used});
  kernels::Routing routing;
  routing.experts = s.experts;
  routing.used = s.used;
  for (const int64_t n : tokens) {
    const auto rows = [&](const Memory& memory) { return memory.view.rows(0, n); };
    gpu.route(rows(ids), rows(weights), rows(logits), routing);
    const auto run = [&](int i) {
      gpu.moe_ffn(rows(out), rows(x), rows(ids), rows(weights), layers[static_cast<size_t>(i % 2)].bank);
    };
    run(0), run(1);
    gpu.synchronize();
    const double once = [&] {
      const double start = seconds();
      run(0), run(1);
      gpu.synchronize();
      return (seconds() - start) / 2;
    }();
    const int repeats = std::max(10, static_cast<int>(0.3 / std::max(once, 1e-6)));
    for (int i = 0; i < repeats / 2; ++i) run(i);  // until the clock has settled
    gpu.synchronize();
    const double start = seconds();
    for (int i = 0; i < repeats; ++i) run(i);
    gpu.synchronize();
    const double each = (seconds() - start) / repeats;
    const double hit =  // experts that are chosen at all, in the mean
        s.experts * (1 - std::pow(1 - static_cast<double>(s.used) / s.experts, static_cast<double>(n)));
    const double bytes =
        hit * static_cast<double>(2 * s.inner * row_bytes(type, s.dim) + s.dim * row_bytes(type, s.inner));
    const double operations = 6.0 * static_cast<double>(n * s.used * s.inner * s.dim);
    const double floor = std::max(bytes / kBytesPerSecond, operations / kOperationsPerSecond);
    fmt::print("{:8} {:5} {} tokens {:5d}  {:9.1f} us  {:5.0f} TFLOP/s   floor {:8.1f} us ({:3.0f} %)\n",
               s.name, name(type), activations == DType::F32 ? "f32 " : "bf16", n, each * 1e6,
               operations / each * 1e-12, floor * 1e6, 100 * floor / each);
    std::fflush(stdout);
  }
}

int run(int count, char** arguments) {
  kernels::CudaOptions options;
  options.activations = kernels::Activations::F32;
  DType activations = DType::F32, type = DType::BF16;
  std::vector<int64_t> tokens;
  std::string_view wanted;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "bf16") {
      options.activations = kernels::Activations::BF16;
      activations = DType::BF16;
    } else if (argument.starts_with("weights=")) {
      const auto known = std::ranges::find(kDTypes, argument.substr(8), &DTypeInfo::name);
      if (known == std::end(kDTypes) || !is_block(known->type)) {
        fmt::print(stderr, "{} is no packed type\n", argument.substr(8));
        return 2;
      }
      type = known->type;
    } else if (std::atoll(arguments[i]) > 0) {
      tokens.push_back(std::atoll(arguments[i]));
    } else {
      wanted = argument;
    }
  }
  if (tokens.empty()) tokens = {1, 8, 32, 128, 512, 2048, 8192};
  auto made = kernels::make_cuda_backend(options);
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  bool known = false;
  for (const Shape& shape : kShapes) {
    if (!wanted.empty() && wanted != shape.name) continue;
    known = true;
    time_shape(**made, shape, type, activations, tokens);
  }
  if (!known) fmt::print(stderr, "no mixture is called {}\n", wanted);
  return known ? 0 : 2;
}

}  // namespace

int main(int count, char** arguments) {
  return bench::run_reporting([&] { return run(count, arguments); });
}
