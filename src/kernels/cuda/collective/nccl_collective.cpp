#include "kernels/cuda/collective/nccl_collective.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include "base/check.h"
#include "kernels/cuda/collective/ipc_collective.h"
#include "kernels/cuda/common/views.h"

namespace sluice::kernels::cuda {

namespace {

constexpr const char* kNcclFile = "libnccl.so.2";

// What is used of NCCL.
struct Nccl {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclGetErrorString) error_string;
};

template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Empty text: it is loaded.
std::string load_nccl(Nccl& nccl) {
  void* library = dlopen(kNcclFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fmt::format("NCCL is needed: install the package libnccl2 ({})", dlerror());
  const bool found = find_function(library, "ncclGetUniqueId", nccl.get_unique_id) &&
                     find_function(library, "ncclCommInitRank", nccl.init_rank) &&
                     find_function(library, "ncclCommAbort", nccl.abort) &&
                     find_function(library, "ncclAllReduce", nccl.all_reduce) &&
                     find_function(library, "ncclSend", nccl.send) &&
                     find_function(library, "ncclRecv", nccl.receive) &&
                     find_function(library, "ncclGroupStart", nccl.group_start) &&
                     find_function(library, "ncclGroupEnd", nccl.group_end) &&
                     find_function(library, "ncclGetErrorString", nccl.error_string);
  return found ? std::string() : fmt::format("{} is not the NCCL of this program", kNcclFile);
}

ncclDataType_t nccl_type(DType type) {
  return type == DType::F32 ? ncclFloat32 : ncclBfloat16;
}

struct NcclSumParams {
  const Nccl* nccl;
  ncclComm_t group;
  void* x;
  int64_t count;
  DType type;
};
void launch_nccl_sum(const NcclSumParams& p, Stream stream) {
  const ncclResult_t result =
      p.nccl->all_reduce(p.x, p.x, static_cast<size_t>(p.count), nccl_type(p.type), ncclSum, p.group, stream);
  if (result != ncclSuccess) fail("ncclAllReduce", p.nccl->error_string(result));
}

// Rank 0 receives the parts of the others row by row, straight into their columns.
struct NcclGatherParams {
  const Nccl* nccl;
  ncclComm_t group;
  View out, part;
  int32_t rank, size;
};
void launch_nccl_gather(const NcclGatherParams& p, Stream stream) {
  const Nccl& nccl = *p.nccl;
  ncclResult_t result = nccl.group_start();
  const auto begin_of = [&](int64_t rank) { return p.out.dim * rank / p.size; };
  const auto note = [&](ncclResult_t one) { result = result == ncclSuccess ? one : result; };
  for (int64_t row = 0; row < p.part.n; ++row) {
    View from = p.part, to = p.out;
    const int64_t element = p.part.type == DType::F32 ? 4 : 2;
    from.data = static_cast<std::byte*>(from.data) + row * from.stride_n * element;
    if (p.rank > 0) {
      note(nccl.send(from.data, static_cast<size_t>(from.dim), nccl_type(from.type), 0, p.group, stream));
      continue;
    }
    to.data = static_cast<std::byte*>(to.data) + row * to.stride_n * element;
    for (int rank = 1; rank < p.size; ++rank)
      note(nccl.receive(offset_columns(to, begin_of(rank)),
                        static_cast<size_t>(begin_of(rank + 1) - begin_of(rank)), nccl_type(to.type), rank,
                        p.group, stream));
  }
  note(nccl.group_end());
  if (result != ncclSuccess) fail("ncclSend and ncclRecv", nccl.error_string(result));
}

class NcclCollective final : public DeviceCollective {
 public:
  NcclCollective(StepContext& step, const Nccl& nccl, int rank, int size)
      : step_(step), nccl_(nccl), rank_(rank), size_(size) {}
  // Without the other ranks, which may be gone.
  ~NcclCollective() override {
    step_.use_device();
    if (group_ == nullptr) return;
    nccl_.abort(group_);
  }
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  std::string start(const ncclUniqueId& id) {
    step_.use_device();
    const ncclResult_t result = nccl_.init_rank(&group_, size_, id, rank_);
    return result == ncclSuccess ? std::string()
                                 : fmt::format("ncclCommInitRank: {}", nccl_.error_string(result));
  }

  std::string name() const override { return "nccl"; }
  void add_up(TensorView x) override {
    SLUICE_CHECK(x.device == Device::Cuda && x.is_contiguous());
    NcclSumParams p = blank<NcclSumParams>();
    p.nccl = &nccl_;
    p.group = group_;
    p.x = x.data;
    p.count = x.elements();
    p.type = x.dtype;
    step_.issue(launch_nccl_sum, p);
  }
  bool add_up_rms_norm(TensorView, const Residual&, const RmsGain&) override { return false; }
  void gather_columns(TensorView out, TensorView part) override {
    if (rank_ == 0) {
      PointwiseParams copy = blank<PointwiseParams>();
      copy.operation = Pointwise::Copy;
      copy.out = view_of(out.columns(0, part.dim(1)));
      copy.a = view_of(part);
      step_.issue(launch_pointwise, copy);
    }
    NcclGatherParams p = blank<NcclGatherParams>();
    p.nccl = &nccl_;
    p.group = group_;
    p.out = view_of(out);
    p.part = view_of(part);
    p.rank = rank_;
    p.size = size_;
    if (size_ > 1) step_.issue(launch_nccl_gather, p);
  }
  void clear_rows(TensorView x, std::span<const int32_t> kept) override { cuda::clear_rows(step_, x, kept); }
  std::optional<int> missing_rank() const override { return std::nullopt; }
  double patience_seconds() const override { return 0; }

 private:
  StepContext& step_;
  const Nccl nccl_;
  const int rank_, size_;
  ncclComm_t group_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<DeviceCollective>> join_nccl(StepContext& step, const RankExchange& ranks) {
  Nccl nccl{};
  std::string problem = load_nccl(nccl);
  ncclUniqueId id{};
  if (problem.empty() && ranks.rank == 0)
    if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess)
      problem = fmt::format("ncclGetUniqueId: {}", nccl.error_string(result));
  if (Status ready = agree(ranks, problem); !ready) return ready.error();
  id = gather_of_ranks(ranks, id).front();
  auto made = std::make_unique<NcclCollective>(step, nccl, ranks.rank, ranks.size);
  if (Status ready = agree(ranks, made->start(id)); !ready) return ready.error();
  return std::unique_ptr<DeviceCollective>(std::move(made));
}

}  // namespace sluice::kernels::cuda
