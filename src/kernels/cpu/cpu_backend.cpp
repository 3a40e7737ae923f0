#include "kernels/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/host.h"
#include "tensor/blocks.h"

namespace sluice::kernels {

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  Result<cpu::IsaLevel> level = cpu::find_isa_level(options.isa);
  if (!level) return level.error();
  const ComputeCores cores = options.threads > 0 ? ComputeCores{options.threads, {}} : compute_cores();
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(*level, cores, options.repack));
}

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (const cpu::IsaLevel& level : cpu::available_isa_levels()) names.emplace_back(level.name);
  return names;
}

namespace cpu {

CpuBackend::CpuBackend(IsaLevel level, const ComputeCores& cores, bool repack)
    : level_(level),
      kernels_(level.table()),
      panel_kernels_(level.panels()),
      recurrent_(level.recurrent()),
      repack_(repack),
      pool_(cores.threads, cores.stay_on) {}

std::string CpuBackend::name() const {
  return fmt::format("cpu {}", level_.features);
}

void CpuBackend::for_rows(int64_t rows, int64_t width, FunctionRef<void(int64_t)> row) {
  constexpr int64_t kWorthwhile = 16384;  // elements; below, handing over costs more than the work
  if (rows * width < kWorthwhile) {
    for (int64_t i = 0; i < rows; ++i) row(i);
    return;
  }
  pool_.for_ranges(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i);
  });
}

void CpuBackend::for_pieces(int64_t rows, int64_t width, FunctionRef<void(int64_t, int64_t, int64_t)> piece) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = (width + kPiece - 1) / kPiece;
  for_rows(rows * pieces, std::min(width, kPiece), [&](int64_t i) {
    const int64_t begin = i % pieces * kPiece;
    piece(i / pieces, begin, std::min(begin + kPiece, width));
  });
}

// -- memory

Memory CpuBackend::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return allocate_host(dtype, shape);
}

Memory CpuBackend::upload(TensorView host) {
  return upload_to_host(host);
}

void CpuBackend::download(TensorView out, TensorView x) {
  copy(out, x);
}

void CpuBackend::embed(TensorView out, const Weight& table, std::span<const int32_t> ids) {
  SLUICE_CHECK_EQ(out.dim(0), static_cast<int64_t>(ids.size()));
  SLUICE_CHECK_EQ(out.dim(1), table.cols);
  for_rows(out.dim(0), table.cols, [&](int64_t i) {
    const WeightRow row = weight_row(table, ids[static_cast<size_t>(i)]);
    dequantize_row(row.type, row.data, out.at<float>(i), table.cols);
  });
}

void CpuBackend::gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) {
  gather_host_rows(out, x, rows);
}

void CpuBackend::copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  copy_kv_blocks(kv, moves);
}

// -- token-wise

void CpuBackend::rms_norm(TensorView out, TensorView x, TensorView gain, float eps) {
  const auto* gains = static_cast<const float*>(gain.data);
  for_rows(row_count(x), x.dim(-1), [&](int64_t i) {
    kernels_.rms_norm(row_at<float>(out, i), row_at<float>(x, i), gains, x.dim(-1), eps);
  });
}

void CpuBackend::layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) {
  const auto* gains = static_cast<const float*>(gain.data);
  const auto* biases = static_cast<const float*>(bias.data);
  for_rows(row_count(x), x.dim(-1), [&](int64_t i) {
    kernels_.layer_norm(row_at<float>(out, i), row_at<float>(x, i), gains, biases, x.dim(-1), eps);
  });
}

void CpuBackend::add(TensorView out, TensorView a, TensorView b, float b_scale) {
  const bool one_row = row_count(b) == 1;
  SLUICE_CHECK(one_row || row_count(b) == row_count(a));
  for_rows(row_count(a), a.dim(-1), [&](int64_t i) {
    kernels_.add_scaled(row_at<float>(out, i), row_at<float>(a, i), row_at<float>(b, one_row ? 0 : i),
                        b_scale, a.dim(-1));
  });
}

void CpuBackend::add_rms_norm(TensorView out, const Residual& x, const RmsGain& norm) {
  const bool one_row = row_count(x.b) == 1;
  SLUICE_CHECK(one_row || row_count(x.b) == row_count(x.sum));
  const auto* gains = static_cast<const float*>(norm.gain.data);
  const int64_t width = x.sum.dim(-1);
  for_rows(row_count(x.sum), width, [&](int64_t i) {
    float* row = row_at<float>(x.sum, i);
    kernels_.add_scaled(row, row, row_at<float>(x.b, one_row ? 0 : i), x.b_scale, width);
    kernels_.rms_norm(row_at<float>(out, i), row, gains, width, norm.eps);
  });
}

void CpuBackend::copy(TensorView out, TensorView x) {
  SLUICE_CHECK_EQ(out.elements(), x.elements());
  SLUICE_CHECK_EQ(out.dim(-1), x.dim(-1));
  for_pieces(row_count(x), x.dim(-1), [&](int64_t row, int64_t begin, int64_t end) {
    std::memcpy(row_at<float>(out, row) + begin, row_at<float>(x, row) + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void CpuBackend::gate_rows(TensorView x, TensorView gate, Activation activation) {
  SLUICE_CHECK_EQ(gate.dim(0), x.dim(0));
  for_rows(x.dim(0), x.dim(1), [&](int64_t i) {
    float factor = 0.0f;
    kernels_.activate(&factor, gate.at<float>(i), 1, activation);
    kernels_.multiply(x.at<float>(i), factor, x.dim(1));
  });
}

void CpuBackend::scale(TensorView x, float factor) {
  for_rows(row_count(x), x.dim(-1),
           [&](int64_t i) { kernels_.multiply(row_at<float>(x, i), factor, x.dim(-1)); });
}

void CpuBackend::softcap(TensorView x, float cap) {
  for_rows(row_count(x), x.dim(-1),
           [&](int64_t i) { kernels_.softcap(row_at<float>(x, i), cap, x.dim(-1)); });
}

void CpuBackend::clamp(TensorView x, float limit) {
  for_rows(row_count(x), x.dim(-1),
           [&](int64_t i) { kernels_.clamp(row_at<float>(x, i), limit, x.dim(-1)); });
}

void CpuBackend::activate(TensorView out, TensorView x, Activation activation) {
  SLUICE_CHECK(activation != Activation::SwigluOai);
  for_rows(row_count(x), x.dim(-1), [&](int64_t i) {
    kernels_.activate(row_at<float>(out, i), row_at<float>(x, i), x.dim(-1), activation);
  });
}

void CpuBackend::gated(TensorView out, TensorView gate_up, Activation activation) {
  const int64_t inner = out.dim(-1);
  SLUICE_CHECK_EQ(gate_up.dim(-1), 2 * inner);
  for_rows(row_count(out), inner, [&](int64_t i) {
    const float* gate = row_at<float>(gate_up, i);
    kernels_.gate(row_at<float>(out, i), gate, gate + inner, inner, activation);
  });
}

}  // namespace cpu
}  // namespace sluice::kernels
