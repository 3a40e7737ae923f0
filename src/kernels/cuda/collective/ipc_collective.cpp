#include "kernels/cuda/collective/ipc_collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

// Large enough to be an allocation of its own: IPC shares whole ones.
constexpr int64_t kInboxBytes = int64_t{8} << 20;
// Sums of no more bytes than this take one shot.
constexpr int64_t kOneShotBytes = int64_t{256} << 10;

int64_t bytes_of(DType type) {
  return type == DType::F32 ? 4 : 2;
}

void* offset_by(void* data, int64_t elements, DType type) {
  return static_cast<std::byte*>(data) + elements * bytes_of(type);
}

struct Mapped {
  Introduction who;
  cudaIpcMemHandle_t handle;
  uint64_t address;  // in its own process
};

void expect_activations(const TensorView& x) {
  SLUICE_CHECK(x.device == Device::Cuda && x.is_contiguous() &&
               (x.dtype == DType::BF16 || x.dtype == DType::F32));
}

}  // namespace

std::string IpcCollective::allocate(int rank, int size) {
  if (size > kMostRanks) return fmt::format("{} ranks on GPUs, limit {}", size, kMostRanks);
  try {
    step_.use_device();
    load_collectives();
    memory_ = allocate_cleared(static_cast<size_t>(kInboxOffset + 2 * kInboxBytes));
    missing_ = allocate_pinned(sizeof(int32_t));
  } catch (const DeviceError& problem) {
    return problem.what();
  }
  *static_cast<int32_t*>(missing_.get()) = 0;
  ranks_.rank = rank;
  ranks_.size = size;
  ranks_.inbox_bytes = kInboxBytes;
  ranks_.missing = static_cast<int32_t*>(missing_.get());
  ranks_.patience_ns = static_cast<uint64_t>(patience_ * 1e9);
  ranks_.memory[rank] = static_cast<unsigned char*>(memory_.get());
  return {};
}

std::string IpcCollective::open(const RankExchange& ranks) {
  Mapped own{};
  own.who = introduce(step_.device);
  own.address = reinterpret_cast<uintptr_t>(memory_.get());
  const cudaError_t exported = ranks.size > 1 ? cudaIpcGetMemHandle(&own.handle, memory_.get()) : cudaSuccess;
  const std::vector<Mapped> all = gather_of_ranks(ranks, own);
  const bool alone = std::all_of(all.begin(), all.end(), [&](const Mapped& other) {
    return same_host(other.who, own.who) && other.who.process == own.who.process;
  });
  if (exported != cudaSuccess && !alone) {
    cudaGetLastError();
    return fmt::format("CUDA IPC does not share memory: {}", cudaGetErrorString(exported));
  }
  for (int rank = 0; rank < ranks.size; ++rank) {
    const Mapped& other = all[static_cast<size_t>(rank)];
    if (rank == ranks.rank) continue;
    void* mapped = reinterpret_cast<void*>(static_cast<uintptr_t>(other.address));
    if (other.who.process != own.who.process) {
      const cudaError_t error = cudaIpcOpenMemHandle(&mapped, other.handle, cudaIpcMemLazyEnablePeerAccess);
      if (error != cudaSuccess) {
        cudaGetLastError();
        return fmt::format("CUDA IPC does not map memory of rank {}: {}", rank, cudaGetErrorString(error));
      }
      opened_.push_back(mapped);
    }
    ranks_.memory[rank] = static_cast<unsigned char*>(mapped);
  }
  return {};
}

Result<std::unique_ptr<DeviceCollective>> IpcCollective::join(StepContext& step, const RankExchange& ranks,
                                                              double patience) {
  auto made = std::unique_ptr<IpcCollective>(new IpcCollective(step, patience));
  if (Status ready = agree(ranks, made->allocate(ranks.rank, ranks.size)); !ready) return ready.error();
  if (Status ready = agree(ranks, made->open(ranks)); !ready) return ready.error();
  return std::unique_ptr<DeviceCollective>(std::move(made));
}

// What other ranks write here is there before this rank's last collective has ended.
IpcCollective::~IpcCollective() {
  step_.use_device();
  cudaStreamSynchronize(step_.stream);
  for (void* mapped : opened_) cudaIpcCloseMemHandle(mapped);
}

int64_t IpcCollective::one_shot_elements(DType type) const {
  return std::min(kOneShotBytes, ranks_.inbox_bytes / ranks_.size) / 16 * 16 / bytes_of(type);
}

void IpcCollective::add_up(TensorView x) {
  expect_activations(x);
  if (ranks_.size == 1) return;
  const int64_t all = x.elements(), one_shot = one_shot_elements(x.dtype);
  // A share of each rank, in whole pieces of eight elements, fits into half an inbox.
  const int64_t longest =
      (ranks_.inbox_bytes / 2 / bytes_of(x.dtype) / (8 * ranks_.size) - 1) * 8 * ranks_.size;
  for (int64_t begin = 0; begin < all;) {
    AddUpParams p = blank<AddUpParams>();
    p.ranks = ranks_;
    p.x = offset_by(x.data, begin, x.dtype);
    p.count = std::min(all - begin, all <= one_shot ? one_shot : longest);
    p.type = x.dtype;
    p.two_shots = all <= one_shot ? 0 : 1;
    step_.issue(launch_add_up, p);
    begin += p.count;
  }
}

bool IpcCollective::add_up_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) {
  const int64_t n = x.b.dim(0), dim = x.b.dim(1), padded = (dim + 7) / 8 * 8;
  // Larger sums take two shots, and norms other than this kernel's: a token's bits would depend on how many there are.
  if (step_.deterministic || ranks_.size == 1 || n == 0) return false;
  if (dim > kWidestFusedNorm || n * padded > one_shot_elements(x.b.dtype)) return false;
  if (!x.sum.is_contiguous() || !out.is_contiguous() || !x.b.is_contiguous()) return false;
  expect_activations(x.b);
  SLUICE_CHECK(x.sum.dtype == x.b.dtype && out.dtype == x.b.dtype && x.sum.dim(0) == n && out.dim(0) == n);
  AddUpNormParams p = blank<AddUpNormParams>();
  p.ranks = ranks_;
  p.out = out.data;
  p.x = x.sum.data;
  p.b = x.b.data;
  p.gain = floats_of(gain.gain, dim);
  p.n = n;
  p.dim = dim;
  p.eps = gain.eps;
  p.scale = x.b_scale;
  p.type = x.b.dtype;
  step_.issue(launch_add_up_norm, p);
  return true;
}

void IpcCollective::gather_columns(TensorView out, TensorView part) {
  expect_activations(part);
  expect_activations(out);
  const int64_t n = part.dim(0), width = out.dim(1);
  const int64_t at_once = rows_of_gather(width, ranks_.size, ranks_.inbox_bytes, bytes_of(part.dtype));
  SLUICE_CHECK(at_once > 0 && out.dtype == part.dtype);
  for (int64_t begin = 0; begin < n; begin += at_once) {
    GatherColumnsParams p = blank<GatherColumnsParams>();
    p.ranks = ranks_;
    p.out = offset_by(out.data, begin * width, out.dtype);
    p.part = offset_by(part.data, begin * part.dim(1), part.dtype);
    p.n = std::min(at_once, n - begin);
    p.width = width;
    p.type = part.dtype;
    step_.issue(launch_gather_columns, p);
  }
}

void IpcCollective::clear_rows(TensorView x, std::span<const int32_t> kept) {
  cuda::clear_rows(step_, x, kept);
}

void clear_rows(StepContext& step, TensorView x, std::span<const int32_t> kept) {
  SLUICE_CHECK_EQ(x.dim(0), static_cast<int64_t>(kept.size()));
  ClearRowsParams p = blank<ClearRowsParams>();
  p.x = view_of(x);
  p.kept = step.put(kTokenBuffer, kept);
  step.issue(launch_clear_rows, p);
}

std::optional<int> IpcCollective::missing_rank() const {
  const int32_t missing = *static_cast<const volatile int32_t*>(missing_.get());
  return missing == 0 ? std::nullopt : std::optional(missing - 1);
}

}  // namespace sluice::kernels::cuda
