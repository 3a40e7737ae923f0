#include "kernels/cuda/gemm/cublaslt_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/log.h"

namespace sluice::kernels::cuda {

namespace {

constexpr size_t kFlushBytes = size_t{128} << 20;  // more than the L2
// Tiles that won on an H200 for some GEMM of 16 to 512 tokens, though cuBLASLt proposes them seldom. By number, since
// most have no name in its header.
constexpr std::array<uint32_t, 20> kTiles{10, 13, 15, 16,  17,  18,  20,  23,  24,  27,
                                          28, 29, 30, 134, 165, 196, 197, 201, 312, 394};

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(what, cublasLtGetStatusString(status));
}

uintptr_t bits(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

int64_t out_bytes(const CublasLtProblem& p) {
  return p.out_type == DType::F32 ? 4 : 2;
}

bool fully_aligned(const CublasLtProblem& p) {
  const int64_t operand = p.fp8() ? 1 : 2;
  const auto strides =
      static_cast<uintptr_t>(p.out_stride * out_bytes(p) | (p.x_stride | p.weight_stride) * operand);
  return ((bits(p.out) | bits(p.x) | bits(p.weight) | strides) & 255u) == 0;
}

// Algorithms are kept for ranges of n: exact below 64, then up to the next quarter of a power of two.
int64_t range_of(int64_t n) {
  if (n <= 64) return (n + 15) / 16 * 16;
  int64_t power = 64;
  while (power * 2 < n) power *= 2;
  return (n + power / 4 - 1) / (power / 4) * (power / 4);
}

template <class T>
bool set(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof value) ==
         CUBLAS_STATUS_SUCCESS;
}

// "4096 x 14336 bf16 -> bf16, up to 512 tokens"
std::string describe_problem(const CublasLtProblem& p, int64_t range) {
  return fmt::format("{} x {} {} -> {}{}, up to {} tokens", p.rows, p.cols, p.fp8() ? "fp8" : "bf16",
                     p.out_type == DType::F32 ? "f32" : "bf16",
                     p.add != 0           ? " added"
                     : p.fixed_order != 0 ? " fixed"
                                          : "",
                     range);
}

template <class T>
int64_t get(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  return static_cast<int64_t>(value);
}

std::string describe_algorithm(const cublasLtMatmulAlgo_t& algorithm, float milliseconds) {
  return fmt::format("algorithm {} tile {} stages {} cluster {} parts {}, {:.1f} us",
                     get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
                     get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     get<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                     get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 1000 * milliseconds);
}

}  // namespace

bool lt_fits(const CublasLtProblem& p) {
  const int64_t operand = p.fp8() ? 1 : 2;
  const auto strides = static_cast<uintptr_t>((p.out_stride | p.rows) * out_bytes(p) |
                                              (p.x_stride | p.weight_stride | p.cols) * operand);
  return ((bits(p.out) | bits(p.x) | bits(p.weight) | strides) & 15u) == 0;
}

CublasLtGemm::CublasLtGemm(size_t workspace_bytes, bool search)
    : workspace_(allocate_cleared(workspace_bytes)), workspace_bytes_(workspace_bytes), search_(search) {
  check_lt(cublasLtCreate(&handle_), "cublasLtCreate");
}

CublasLtGemm::~CublasLtGemm() {
  for (auto& [shape, plan] : plans_) {
    cublasLtMatrixLayoutDestroy(plan.weight);
    cublasLtMatrixLayoutDestroy(plan.x);
    cublasLtMatrixLayoutDestroy(plan.out);
    cublasLtMatmulDescDestroy(plan.operation);
  }
  cublasLtDestroy(handle_);
}

CublasLtGemm::Shape CublasLtGemm::shape_of(const CublasLtProblem& p) {
  return {p.n,     p.rows,     p.cols, p.out_stride, p.x_stride, p.weight_stride, fully_aligned(p),
          p.fp8(), p.out_type, p.add,  p.fixed_order};
}

void CublasLtGemm::set_scales(const Plan& plan, const CublasLtProblem& p) {
  const auto set_pointer = [&](cublasLtMatmulDescAttributes_t attribute, const float* scales) {
    check_lt(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &scales, sizeof scales),
             "matmul description");
  };
  set_pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.weight_scales);
  set_pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scales);
}

// cuBLASLt counts columns first: weightᵀ is its A [cols, rows], x its B [cols, n], out its D [rows, n].
CublasLtGemm::Plan CublasLtGemm::describe(const CublasLtProblem& p) const {
  Plan plan;
  check_lt(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul description");
  const cublasOperation_t transpose = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  check_lt(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                          sizeof transpose),
           "matmul description");
  check_lt(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain),
           "matmul description");
  if (p.fp8()) {
    const int8_t fast = 1;
    const int32_t per_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    check_lt(
        cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast),
        "matmul description");
    for (auto mode : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      check_lt(cublasLtMatmulDescSetAttribute(plan.operation, mode, &per_row, sizeof per_row),
               "matmul description");
    set_scales(plan, p);
  }
  const auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
  const cudaDataType_t type = p.fp8() ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  check_lt(cublasLtMatrixLayoutCreate(&plan.weight, type, u(p.cols), u(p.rows), p.weight_stride), "layout");
  check_lt(cublasLtMatrixLayoutCreate(&plan.x, type, u(p.cols), u(p.n), p.x_stride), "layout");
  const cudaDataType_t out = p.out_type == DType::F32 ? CUDA_R_32F : CUDA_R_16BF;
  check_lt(cublasLtMatrixLayoutCreate(&plan.out, out, u(p.rows), u(p.n), p.out_stride), "layout");
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> CublasLtGemm::proposals(const Plan& plan, bool aligned) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const uint32_t alignment = aligned ? 256 : 16;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &workspace_bytes_, sizeof workspace_bytes_);
  for (auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  }
  std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.weight, plan.x, plan.out, plan.out,
                                     preference, static_cast<int>(results.size()), results.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check_lt(status, "no cuBLASLt algorithm for this shape");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  if (algorithms.empty()) fail("cuBLASLt", "no algorithm for this shape");
  return algorithms;
}

bool CublasLtGemm::valid(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, plan.operation, plan.weight, plan.x, plan.out, plan.out, &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes_;
}

// One setting changed at a time: cluster shape, number of parts of the columns, the kernel's own option.
std::vector<cublasLtMatmulAlgo_t> CublasLtGemm::variants(const Plan& plan,
                                                         const cublasLtMatmulAlgo_t& base) const {
  std::vector<cublasLtMatmulAlgo_t> result;
  const auto keep = [&](const cublasLtMatmulAlgo_t& algorithm, bool ok) {
    if (ok && valid(plan, algorithm)) result.push_back(algorithm);
  };
  for (uint16_t cluster = 2; cluster <= 9; ++cluster) {
    cublasLtMatmulAlgo_t a = base;
    keep(a, set<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster));
  }
  for (int32_t parts = 1; parts <= 4; ++parts) {
    cublasLtMatmulAlgo_t a = base;
    const uint32_t scheme =
        parts == 1 ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    keep(a, set<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts) &&
                set<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme));
    if (parts == 1) {
      keep(a, set<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1) &&
                  set<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme) &&
                  set<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2));
    }
  }
  uint32_t options = 0;
  size_t written = 0;
  cublasLtMatmulAlgoCapGetAttribute(&base, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &options, sizeof options,
                                    &written);
  for (uint32_t option = 0; option <= std::min(options, 7u); ++option) {
    cublasLtMatmulAlgo_t a = base;
    keep(a, set<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option));
  }
  return result;
}

std::vector<cublasLtMatmulAlgo_t> CublasLtGemm::with_other_tiles(const Plan& plan,
                                                                 const cublasLtMatmulAlgo_t& base) const {
  constexpr uint16_t kOneBlock = 2, kTwoBlocks = 3;  // shapes of a cluster: 1 x 1 and 2 x 1
  std::vector<cublasLtMatmulAlgo_t> result;
  for (const uint32_t tile : kTiles) {
    for (const uint16_t cluster : {kOneBlock, kTwoBlocks}) {
      cublasLtMatmulAlgo_t a = base;
      const bool ok = set<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID, tile) &&
                      set<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) &&
                      set<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1) &&
                      set<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_NONE);
      if (ok && valid(plan, a)) result.push_back(a);
    }
  }
  return result;
}

cublasStatus_t CublasLtGemm::call(const CublasLtProblem& p, const Plan& plan,
                                  const cublasLtMatmulAlgo_t& algorithm, void* out,
                                  cudaStream_t stream) const {
  const float one = 1.0f, kept = p.add != 0 ? 1.0f : 0.0f;
  if (p.fp8()) set_scales(plan, p);
  return cublasLtMatmul(handle_, plan.operation, &one, p.weight, plan.weight, p.x, plan.x, &kept, out,
                        plan.out, out, plan.out, &algorithm, workspace_.get(), workspace_bytes_, stream);
}

// Each run alone, behind a read that empties the L2 of the weights and hides the launch; the median of the repeats.
std::vector<CublasLtGemm::Timed> CublasLtGemm::time_all(const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                                                        const CublasLtProblem& p, const Plan& plan,
                                                        int repeats, cudaStream_t stream) {
  const DeviceBuffer out = allocate_cleared(static_cast<size_t>(p.n * p.out_stride * out_bytes(p)) + 256);
  const DeviceBuffer flush = allocate_device(kFlushBytes);
  check(cudaMemsetAsync(flush.get(), 0, kFlushBytes, stream), "memset");
  cudaEvent_t before = nullptr, after = nullptr;
  check(cudaEventCreate(&before), "event");
  check(cudaEventCreate(&after), "event");
  std::vector<Timed> timed;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    std::vector<float> times;
    for (int r = 0; r <= repeats; ++r) {
      launch_read(flush.get(), kFlushBytes, stream);
      check(cudaEventRecord(before, stream), "event");
      if (call(p, plan, algorithm, out.get(), stream) != CUBLAS_STATUS_SUCCESS) break;
      check(cudaEventRecord(after, stream), "event");
      check(cudaEventSynchronize(after), "timing a GEMM");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, before, after), "event");
      if (r > 0) times.push_back(milliseconds);
    }
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    timed.push_back({algorithm, times[times.size() / 2]});
  }
  cudaEventDestroy(before);
  cudaEventDestroy(after);
  std::stable_sort(timed.begin(), timed.end(),
                   [](const Timed& a, const Timed& b) { return a.time < b.time; });
  return timed;
}

std::vector<CublasLtGemm::Timed> CublasLtGemm::find(const CublasLtProblem& p, const Plan& plan,
                                                    cudaStream_t stream) {
  std::vector<cublasLtMatmulAlgo_t> algorithms = proposals(plan, fully_aligned(p));
  std::vector<Timed> timed = time_all(algorithms, p, plan, 3, stream);
  if (timed.empty()) return {{algorithms.front(), 0}};
  // Long GEMMs take milliseconds each: fewer of their neighbours are tried.
  const size_t bases = p.n <= 1024 ? 3 : 1;
  std::vector<cublasLtMatmulAlgo_t> more;
  for (size_t i = 0; i < std::min<size_t>(3, timed.size()); ++i) {
    more.push_back(timed[i].algorithm);
    if (i >= bases) continue;
    const auto near = variants(plan, timed[i].algorithm);
    more.insert(more.end(), near.begin(), near.end());
  }
  if (p.n <= 1024 && !p.fp8()) {
    const auto others = with_other_tiles(plan, timed.front().algorithm);
    more.insert(more.end(), others.begin(), others.end());
  }
  if (std::vector<Timed> second = time_all(more, p, plan, 2, stream); !second.empty())
    timed = std::move(second);
  std::vector<cublasLtMatmulAlgo_t> best;
  for (size_t i = 0; i < std::min<size_t>(4, timed.size()); ++i) best.push_back(timed[i].algorithm);
  std::vector<Timed> last = time_all(best, p, plan, 5, stream);
  if (last.empty()) return timed;
  if (p.fixed_order != 0) last.insert(last.end(), timed.begin(), timed.end());
  return last;
}

// Of the same matrix at the next larger range, else at the next smaller one; cuBLASLt's first proposal where none fits.
std::optional<cublasLtMatmulAlgo_t> CublasLtGemm::nearest(const CublasLtProblem& p, const Plan& plan,
                                                          cudaStream_t stream) {
  const bool aligned = fully_aligned(p);
  const cublasLtMatmulAlgo_t* best = nullptr;
  int64_t best_range = 0;
  for (const auto& [key, algorithm] : found_) {
    const auto& [rows, cols, range, alike, fp8, out_type, add, fixed_order] = key;
    const bool same = rows == p.rows && cols == p.cols && alike == aligned && fp8 == p.fp8() &&
                      out_type == p.out_type && add == p.add && fixed_order == p.fixed_order;
    if (!same || !algorithm || !valid(plan, *algorithm)) continue;
    const bool larger = range >= p.n, best_larger = best != nullptr && best_range >= p.n;
    if (best == nullptr ||
        (larger ? !best_larger || range < best_range : !best_larger && range > best_range)) {
      best = &*algorithm;
      best_range = range;
    }
  }
  if (best != nullptr) return *best;
  const std::vector<cublasLtMatmulAlgo_t> proposed = proposals(plan, aligned);
  if (p.fixed_order == 0) return proposed.front();
  std::vector<Timed> candidates;
  for (const cublasLtMatmulAlgo_t& algorithm : proposed) candidates.push_back({algorithm, 0});
  const std::optional<Timed> fixed = first_fixed(candidates, p, plan, stream);
  return fixed ? std::optional(fixed->algorithm) : std::nullopt;
}

void CublasLtGemm::prepare(const CublasLtProblem& p, cudaStream_t stream) {
  const Shape shape = shape_of(p);
  if (plans_.contains(shape)) return;
  Plan plan = describe(p);
  const Range key{p.rows, p.cols, range_of(p.n), fully_aligned(p), p.fp8(), p.out_type, p.add, p.fixed_order};
  if (const auto known = found_.find(key);
      known != found_.end() && (!known->second || valid(plan, *known->second))) {
    plan.algorithm = known->second;
  } else if (search_) {
    const std::vector<Timed> timed = find(p, plan, stream);
    const std::optional<Timed> best =
        p.fixed_order != 0 ? first_fixed(timed, p, plan, stream) : std::optional(timed.front());
    log_debug("gemm cublaslt {}: {}", describe_problem(p, range_of(p.n)),
              best ? describe_algorithm(best->algorithm, best->time) : "none in the fixed order");
    if (best) plan.algorithm = best->algorithm;
    found_[key] = plan.algorithm;
  } else {
    plan.algorithm = nearest(p, plan, stream);
    if (p.fixed_order != 0) found_[key] = plan.algorithm;
  }
  plans_.emplace(shape, plan);
}

void CublasLtGemm::run(const CublasLtProblem& p, cudaStream_t stream) {
  const auto plan = plans_.find(shape_of(p));
  if (plan == plans_.end()) fail("GEMM", "shape was not prepared");
  check_lt(call(p, plan->second, plan->second.algorithm.value(), p.out, stream), "cublasLtMatmul");
}

bool CublasLtGemm::has_algorithm(const CublasLtProblem& p) const {
  const auto plan = plans_.find(shape_of(p));
  return plan != plans_.end() && plan->second.algorithm.has_value();
}

}  // namespace sluice::kernels::cuda
