// Times single GEMMs of a Llama-3.1-8B shape on the CUDA back-end: cuBLASLt with its searched algorithm next to the
// back-end's own kernels, many launches in a row over weights that do not fit the L2, so that the GPU's power limit
// counts as it does in a whole step.
//   bench_gpu_gemm [tokens...]
//   bench_gpu_gemm split [tokens...]   every way to cut matrices among clusters, at up to 256 tokens
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

GemmSplitParams split_params(const GemmParams& p) {
  GemmSplitParams s = blank<GemmSplitParams>();
  s.gemm = p;
  return s;
}

// Every way to cut the matrices of several models for gemm_split_sm90.cu, bf16 and fp8, and which one it chooses.
void run_split(const std::vector<int64_t>& tokens) {
  struct Shape {
    std::string_view name;
    int64_t rows, cols;
    bool gated;
  };
  constexpr Shape kShapes[] = {{"8B qkv", 6144, 4096, false},      {"8B out", 4096, 4096, false},
                               {"8B gate+up", 28672, 4096, true},  {"8B down", 4096, 14336, false},
                               {"0.6B qkv", 4096, 1024, false},    {"0.6B out", 1024, 2048, false},
                               {"0.6B gate+up", 6144, 1024, true}, {"0.6B down", 1024, 3072, false}};
  constexpr int kCopies = 12;  // of a small matrix, so that the L2 does not hold them
  const DeviceBuffer weights = random_values(kElements * 2, 0.7f / 64),
                     x = random_values(size_t{256} * 14336, 1.0f);
  const DeviceBuffer out = allocate_device(size_t{256} * 28672 * 2),
                     scales = allocate_device(size_t{28672} * 4);
  check(cudaMemset(scales.get(), 0, size_t{28672} * 4), "clear");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (const Shape& shape : kShapes) {
    for (const bool fp8 : {false, true}) {
      for (const int64_t n : tokens) {
        if (n > kMostSplitTokens) continue;
        const int64_t bytes = fp8 ? 1 : 2, row_bytes = shape.cols * bytes + (fp8 ? kFp8Header : 0);
        const int64_t copies = std::min<int64_t>(kCopies, kElements * 4 / (shape.rows * row_bytes));
        GemmSplitParams s = blank<GemmSplitParams>();
        s.gated = shape.gated ? 1 : 0;
        s.gemm.x = {x.get(), n, 1, shape.cols, shape.cols, 0, DType::BF16};
        const int64_t results = shape.gated ? shape.rows / 2 : shape.rows;
        s.gemm.out = {out.get(), n, 1, results, results, 0, DType::BF16};
        const auto* scale = fp8 ? static_cast<const float*>(scales.get()) : nullptr;
        s.x_scales = scale;
        const auto launch = [&](GemmSplitParams q, int i) {
          const auto* at = static_cast<const std::byte*>(weights.get()) + i % copies * shape.rows * row_bytes;
          q.gemm.weight = {at, shape.rows, shape.cols, row_bytes, scale, fp8 ? DType::F8_E4M3 : DType::BF16};
          if (!gemm_split_fits(q)) return false;
          launch_gemm_split(q, stream);
          return true;
        };
        const double floor = static_cast<double>(shape.rows * row_bytes) / bench::kBytesPerSecond * 1e6;
        fmt::print("{:12} {} n {:3} floor {:5.1f}:", shape.name, fp8 ? "fp8 " : "bf16", n, floor);
        const auto one = [&](int rows, int shares) {
          s.tile_rows = rows;
          s.shares = shares;
          if (!launch(s, 0)) return;
          const double us = time([&](int i) { launch(s, i); }, stream);
          fmt::print("  {}{:.1f}", rows > 0 ? fmt::format("{}/{} ", rows, shares) : "chosen ", us);
        };
        one(0, 0);
        for (const int rows : {32, 64, 96, 128, 192, 224, 256})
          for (const int shares : {1, 2, 4, 8}) one(rows, shares);
        fmt::print("\n");
        std::fflush(stdout);
      }
    }
  }
  cudaStreamDestroy(stream);
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
      if (n > 32 && n <= kMostSplitTokens)
        few("split", [](const GemmParams& q, cudaStream_t on) {
          if (gemm_split_fits(split_params(q))) launch_gemm_split(split_params(q), on);
        });
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
  const bool split = count > 1 && std::string_view(arguments[1]) == "split";
  for (int i = split ? 2 : 1; i < count; ++i) tokens.push_back(std::atoll(arguments[i]));
  if (tokens.empty()) tokens = {64, 128, 256, 512, 2048, 8192};
  return bench::run_reporting([&] {
    split ? run_split(tokens) : run(tokens);
    return 0;
  });
}
