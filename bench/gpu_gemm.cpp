// Times single GEMMs of a Llama-3.1-8B shape on the CUDA back-end: cuBLASLt with its searched algorithm next to the
// back-end's own kernels, many launches in a row over weights that do not fit the L2, so that the GPU's power limit
// counts as it does in a whole step.
//   bench_gpu_gemm [tokens...]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "gpu_bench.h"
#include "gpu_events.h"
#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "kernels/cuda/step/token_params.h"
#include "tensor/half.h"

namespace {

using namespace sluice;
using namespace sluice::kernels::cuda;

struct Gemm {
  std::string_view name;
  int64_t rows, cols;
};
constexpr std::array<Gemm, 4> kGemms{
    {{"qkv", 6144, 4096}, {"out", 4096, 4096}, {"gate+up", 28672, 4096}, {"down", 4096, 14336}}};
constexpr size_t kElements = size_t{28672} * 4096;

DeviceBuffer random_values(size_t count, float deviation) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i < 65536 ? f32_to_bf16(normal(engine)) : values[(i * 2654435761u >> 9) & 65535];
  DeviceBuffer memory = allocate_device(count * 2);
  check(cudaMemcpy(memory.get(), values.data(), count * 2, cudaMemcpyHostToDevice), "upload");
  return memory;
}

// Microseconds of one launch among many.
double time(const std::function<void(int)>& launch, cudaStream_t stream) {
  bench::StreamTimer timer(stream);
  launch(0);
  const float once = timer.milliseconds([&] { launch(1); });
  const int repeats = std::max(4, static_cast<int>(500.0f / std::max(once, 0.01f)));
  const auto all = [&](int count) {
    for (int i = 0; i < count; ++i) launch(i);
  };
  all(repeats / 2);  // until the clock has settled
  return timer.milliseconds([&] { all(repeats); }) * 1e3 / repeats;
}

GemmParams gated_gemm(GemmParams p, const View& out) {
  p.out = out;
  return p;
}

void run(const std::vector<int64_t>& tokens) {
  constexpr int kCopies = 3;
  std::vector<DeviceBuffer> weights;
  for (int i = 0; i < kCopies; ++i) weights.push_back(random_values(kElements, 0.7f / 64));
  const DeviceBuffer x = random_values(size_t{8192} * 14336, 1.0f),
                     out = allocate_device(size_t{8192} * 28672 * 2);
  const DeviceBuffer half = allocate_device(size_t{8192} * 14336 * 2);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  CublasLtGemm lt(size_t{64} << 20, true);
  for (const Gemm& shape : kGemms) {
    for (const int64_t n : tokens) {
      GemmParams p = blank<GemmParams>();
      p.x = {x.get(), n, 1, shape.cols, shape.cols, 0, DType::BF16};
      p.out = {out.get(), n, 1, shape.rows, shape.rows, 0, DType::BF16};
      p.weight = {nullptr, shape.rows, shape.cols, shape.cols * 2, nullptr, DType::BF16};
      const auto with = [&](int i) {
        GemmParams q = p;
        q.weight.data = weights[static_cast<size_t>(i % kCopies)].get();
        return q;
      };
      const auto library = [&](int i) {
        CublasLtProblem l = blank<CublasLtProblem>();
        l.out = out.get(), l.x = x.get(), l.weight = weights[static_cast<size_t>(i % kCopies)].get();
        l.n = n, l.rows = shape.rows, l.cols = shape.cols, l.out_type = DType::BF16;
        l.out_stride = shape.rows, l.x_stride = l.weight_stride = shape.cols;
        lt.prepare(l, stream);
        lt.run(l, stream);
      };
      PointwiseParams g = blank<PointwiseParams>();
      g.operation = Pointwise::Gated;
      g.a = p.out, g.a.dim = shape.rows / 2;
      g.b = g.a, g.b.data = static_cast<uint16_t*>(out.get()) + shape.rows / 2;
      g.out = {half.get(), n, 1, shape.rows / 2, shape.rows / 2, 0, DType::BF16};
      const double with_library = time(library, stream);
      const double operations = 2.0 * static_cast<double>(n * shape.rows * shape.cols);
      fmt::print("{:8} n {:5}  cuBLASLt {:7.1f} us {:4.0f} TFLOP/s", shape.name, n, with_library,
                 operations / with_library * 1e-6);
      if (shape.name == "gate+up" && gemm_swiglu_fits(gated_gemm(with(0), g.out))) {
        const double two = time(
            [&](int i) {
              library(i);
              launch_pointwise(g, stream);
            },
            stream);
        const double one =
            time([&](int i) { launch_gemm_swiglu(gated_gemm(with(i), g.out), stream); }, stream);
        fmt::print("   gated: with a pass over the result {:7.1f} us, in one {:7.1f} us {:4.0f} TFLOP/s", two,
                   one, operations / one * 1e-6);
      }
      const auto few = [&](std::string_view name, auto launch_kernel) {
        const double one = time([&](int i) { launch_kernel(with(i), stream); }, stream);
        fmt::print("   {} {:7.1f} us {:4.2f} TB/s", name, one,
                   2e-6 * static_cast<double>(shape.rows * shape.cols) / one);
      };
      if (n <= 32) few("small_m", launch_gemm_small_m);
      if (n <= kFixedTokens) few("fixed", launch_gemm_fixed);
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
  cudaStreamDestroy(stream);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<int64_t> tokens;
  for (int i = 1; i < count; ++i) tokens.push_back(std::atoll(arguments[i]));
  if (tokens.empty()) tokens = {64, 128, 256, 512, 2048, 8192};
  return bench::run_reporting([&] {
    run(tokens);
    return 0;
  });
}
