// Checks and times the GEMMs with quantized matrices in units (src/kernels/cuda/gemm/quantized/units.h) on shapes of Llama-3.1-8B:
// microseconds of a launch among many in a graph, over weights that do not fit the L2, beside the least time that the
// bytes of the units take at 4.39 TB/s.
//   bench_gpu_units [check] [TYPE ...]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "gpu_bench.h"
#include "gpu_events.h"
#include "kernels/cuda/gemm/quantized/units_gemm.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace {

using namespace sluice;
using namespace sluice::kernels::cuda;

constexpr double kBytesPerSecond = 4.39e12, kTolerance = 1e-2;
constexpr DType kTypes[] = {DType::Q4_K, DType::Q8_0, DType::Q6_K, DType::Q5_K,   DType::Q4_0,
                            DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL, DType::MXFP4};
std::mt19937 random_bits(5);

// Where the f16 scales of a block lie, and the range of what they multiply.
struct Scales {
  std::vector<size_t> offsets;
  float range;
};
Scales scales_of(DType type) {
  switch (type) {
    case DType::Q4_1:
    case DType::Q5_1:
      return {{0, 2}, 16};
    case DType::Q4_K:
      return {{0, 2}, 63 * 15};
    case DType::Q5_K:
      return {{0, 2}, 63 * 31};
    case DType::Q6_K:
      return {{208}, 127 * 32};
    case DType::Q8_0:
    case DType::IQ4_NL:
      return {{0}, 127};
    case DType::MXFP4:
      return {{}, 1};
    default:
      return {{0}, 16};
  }
}

// Rows of random blocks; the same few again and again, each time in another order.
struct Stored {
  Stored(DType wanted, int64_t row_count, int64_t col_count)
      : type(wanted), rows(row_count), cols(col_count) {
    constexpr int64_t kDistinct = 509;
    const auto width = static_cast<size_t>(row_bytes(type, cols));
    std::vector<uint8_t> few(kDistinct * width);
    for (uint8_t& byte : few) byte = static_cast<uint8_t>(random_bits());
    const Scales scales = scales_of(type);
    for (size_t block = 0; block < few.size(); block += static_cast<size_t>(info(type).block_bytes)) {
      if (type == DType::MXFP4) few[block] = static_cast<uint8_t>(120 + random_bits() % 4);
      for (const size_t offset : scales.offsets) {
        const float scale = (0.5f + static_cast<float>(random_bits() % 1024) / 1024.0f) / scales.range;
        const uint16_t bits = f32_to_f16(offset > 0 && scales.offsets.size() == 2 ? scale * 0.5f : scale);
        few[block + offset] = static_cast<uint8_t>(bits);
        few[block + offset + 1] = static_cast<uint8_t>(bits >> 8);
      }
    }
    bytes.resize(static_cast<size_t>(rows) * width);
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(few.data() + static_cast<size_t>(row * 7 % kDistinct) * width, width,
                  bytes.data() + static_cast<size_t>(row) * width);
  }
  std::vector<float> decoded(int64_t row) const {
    std::vector<float> out(static_cast<size_t>(cols));
    dequantize_row(type, bytes.data() + row * row_bytes(type, cols), out.data(), cols);
    return out;
  }
  DType type;
  int64_t rows, cols;
  std::vector<uint8_t> bytes;
};

struct Packed {
  Packed(const Stored& stored, cudaStream_t stream) {
    matrix = blank<Matrix>();
    matrix.type = stored.type;
    matrix.units = units_of(stored.type);
    matrix.rows = stored.rows;
    matrix.cols = stored.cols;
    matrix.row_bytes = stored.cols / kUnitCols * unit_bytes(matrix.units) / kUnitRows;
    const auto size = static_cast<size_t>((stored.rows + 15) / 16 * 16 * matrix.row_bytes);
    memory = allocate_cleared(size);
    matrix.data = memory.get();
    const DeviceBuffer source = allocate_device(stored.bytes.size());
    check(cudaMemcpy(source.get(), stored.bytes.data(), stored.bytes.size(), cudaMemcpyHostToDevice),
          "upload");
    check(cudaDeviceSynchronize(), "upload");
    PackUnitsParams p = blank<PackUnitsParams>();
    p.source = source.get();
    p.out = memory.get();
    p.rows = stored.rows;
    p.cols = stored.cols;
    p.source_row_bytes = row_bytes(stored.type, stored.cols);
    p.type = stored.type;
    launch_pack_units(p, stream);
    check(cudaStreamSynchronize(stream), "packing");
  }
  Matrix matrix;
  DeviceBuffer memory;
};

struct Tokens {
  explicit Tokens(size_t count, float deviation = 1.0f) : host(count), device(allocate_device(count * 2)) {
    std::normal_distribution<float> normal(0.0f, deviation);
    for (uint16_t& value : host) value = f32_to_bf16(normal(random_bits));
    check(cudaMemcpy(device.get(), host.data(), count * 2, cudaMemcpyHostToDevice), "upload");
    check(cudaDeviceSynchronize(), "upload");
  }
  std::vector<uint16_t> host;
  DeviceBuffer device;
};

UnitsGemmParams gemm_of(const Matrix& weight, int64_t n, bool gated, const DeviceBuffer& x,
                        const DeviceBuffer& out) {
  UnitsGemmParams u = blank<UnitsGemmParams>();
  const int64_t results = gated ? weight.rows / 2 : weight.rows;
  u.gemm.weight = weight;
  u.gemm.x = {x.get(), n, 1, weight.cols, weight.cols, 0, DType::BF16};
  u.gemm.out = {out.get(), n, 1, results, results, 0, DType::BF16};
  u.table = unit_table(weight.type);
  u.gated = gated ? 1 : 0;
  return u;
}

using Launch = void (*)(const UnitsGemmParams&, Stream);

double silu(double value) {
  return value / (1 + std::exp(-value));
}

// ‖out − reference‖ / ‖reference‖ over some rows; infinite where a number is not finite.
double error_of(const Stored& stored, const UnitsGemmParams& u, const Tokens& x, cudaStream_t stream) {
  const int64_t n = u.gemm.x.n, results = u.gemm.out.dim;
  std::vector<uint16_t> out(static_cast<size_t>(n * results));
  check(cudaMemcpyAsync(out.data(), u.gemm.out.data, out.size() * 2, cudaMemcpyDeviceToHost, stream),
        "download");
  check(cudaStreamSynchronize(stream), "GEMM");
  double wrong = 0, right = 0;
  for (int64_t i = 0; i < 48; ++i) {
    const int64_t row = i < 8 ? results - 1 - i : (i * 7919 + 13) % results;
    const std::vector<float> w = stored.decoded(row), up = u.gated != 0 ? stored.decoded(results + row) : w;
    for (int64_t token = 0; token < n; ++token) {
      double first = 0, second = 0;
      for (int64_t k = 0; k < stored.cols; ++k) {
        const double v = bf16_to_f32(x.host[static_cast<size_t>(token * stored.cols + k)]);
        first += w[static_cast<size_t>(k)] * v;
        second += up[static_cast<size_t>(k)] * v;
      }
      const double expected = u.gated != 0 ? silu(first) * second : first;
      const double got = bf16_to_f32(out[static_cast<size_t>(token * results + row)]);
      if (!std::isfinite(got)) return INFINITY;
      wrong += (got - expected) * (got - expected);
      right += expected * expected;
    }
  }
  return std::sqrt(wrong / right);
}

// Microseconds of one launch in a graph of many.
double time(const std::function<void(int)>& launch, cudaStream_t stream) {
  constexpr int kLaunches = 48, kReplays = 6;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  launch(0);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
  for (int i = 0; i < kLaunches; ++i) launch(i);
  check(cudaStreamEndCapture(stream, &graph), "recording");
  check(cudaGraphInstantiate(&executable, graph, 0), "recording");
  const auto replay = [&] { check(cudaGraphLaunch(executable, stream), "replay"); };
  replay();
  const float milliseconds = bench::StreamTimer(stream).milliseconds([&] {
    for (int i = 0; i < kReplays; ++i) replay();
  });
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return milliseconds * 1e3 / (kLaunches * kReplays);
}

struct Bench {
  cudaStream_t stream = nullptr;
  DeviceBuffer out = allocate_device(size_t{512} * 128256 * 2);
  int failures = 0;

  void judge(std::string_view name, double error) {
    if (error < kTolerance) return;
    ++failures;
    fmt::print("FAILED {}: error {:.2e}\n", name, error);
  }

  void check_type(DType type) {
    double worst = 0;
    for (const auto& [rows, cols, gated] : {std::tuple<int64_t, int64_t, bool>{1000, 768, false},
                                            {40, 256, false},
                                            {992, 1280, true},
                                            {8224, 512, false}}) {
      const Stored stored(type, rows, cols);
      const Packed packed(stored, stream);
      const Tokens x(static_cast<size_t>(300 * cols), gated ? 0.1f : 1.0f);
      for (const int64_t n : {1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 256, 300}) {
        const UnitsGemmParams u = gemm_of(packed.matrix, n, gated, x.device, out);
        for (const Launch launch : {launch_units_few, launch_units_many}) {
          if (launch == launch_units_few && n > kUnitsFew) continue;
          check(cudaMemsetAsync(out.get(), 0xff, static_cast<size_t>(n * u.gemm.out.dim) * 2, stream),
                "poison");
          launch(u, stream);
          const double error = error_of(stored, u, x, stream);
          worst = std::max(worst, error);
          judge(fmt::format("{} {} x {}{} n {} {}", name(type), rows, cols, gated ? " gated" : "", n,
                            launch == launch_units_few ? "few" : "many"),
                error);
        }
      }
      check_rows(stored, packed);
    }
    fmt::print("checked {}: largest error {:.2e}\n", name(type), worst);
    std::fflush(stdout);
  }

  // Units back to bf16.
  void check_rows(const Stored& stored, const Packed& packed) {
    UnpackUnitsParams p = blank<UnpackUnitsParams>();
    p.source = packed.matrix;
    p.table = unit_table(stored.type);
    p.out = out.get();
    launch_unpack_units(p, stream);
    std::vector<uint16_t> got(static_cast<size_t>(stored.rows * stored.cols));
    check(cudaMemcpyAsync(got.data(), out.get(), got.size() * 2, cudaMemcpyDeviceToHost, stream), "download");
    check(cudaStreamSynchronize(stream), "unpacking");
    double wrong = 0, right = 0;
    for (int64_t row = 0; row < stored.rows; row += 3) {
      const std::vector<float> w = stored.decoded(row);
      for (int64_t k = 0; k < stored.cols; ++k) {
        const double v = w[static_cast<size_t>(k)],
                     g = bf16_to_f32(got[static_cast<size_t>(row * stored.cols + k)]);
        wrong += (g - v) * (g - v), right += v * v;
      }
    }
    judge(fmt::format("{} rows", name(stored.type)), std::sqrt(wrong / right));
  }

  void time_type(DType type) {
    struct Shape {
      std::string_view name;
      int64_t rows, cols;
      bool gated;
    };
    for (const Shape& shape : {Shape{"qkv", 6144, 4096, false},
                               {"out", 4096, 4096, false},
                               {"gate+up", 28672, 4096, true},
                               {"down", 4096, 14336, false},
                               {"head", 128256, 4096, false}}) {
      const int64_t copies = std::max<int64_t>(1, int64_t{260'000'000} / (shape.rows * shape.cols));
      const Stored stored(type, shape.rows * copies, shape.cols);
      const Packed packed(stored, stream);
      const Tokens x(static_cast<size_t>(256 * shape.cols));
      Matrix one = packed.matrix;
      one.rows = shape.rows;
      const double bytes = static_cast<double>(one.rows * one.row_bytes);
      fmt::print("{} {} ({:.1f} us):", name(type), shape.name, bytes / kBytesPerSecond * 1e6);
      for (const int64_t n : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
        const auto run = [&](int i, Launch launch) {
          Matrix weight = one;
          weight.data =
              static_cast<const std::byte*>(packed.matrix.data) + i % copies * one.rows * one.row_bytes;
          launch(gemm_of(weight, n, shape.gated, x.device, out), stream);
        };
        fmt::print(" | {}:", n);
        if (n <= kUnitsFew) fmt::print(" {:.1f}", time([&](int i) { run(i, launch_units_few); }, stream));
        fmt::print(" {:.1f}", time([&](int i) { run(i, launch_units_many); }, stream));
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
};

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = [&](std::string_view word) {
    for (int i = 1; i < count; ++i)
      if (word == arguments[i]) return true;
    return false;
  };
  const bool only_check = wanted("check"), all = count == 1 + (only_check ? 1 : 0);
  return bench::run_reporting([&] {
    Bench run;
    check(cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking), "stream");
    for (const DType type : kTypes) {
      if (!all && !wanted(name(type))) continue;
      run.check_type(type);
      if (!only_check && (!all || type == DType::Q4_K || type == DType::Q8_0 || type == DType::Q6_K))
        run.time_type(type);
    }
    return run.failures == 0 ? 0 : 1;
  });
}
