// The class behind make_cuda_backend. Each operation turns its views into a kernel's plain parameters and
// hands them to issue(); the files token_ops.cpp, gemm_ops.cpp, dequant_gemm_ops.cpp, attention_ops.cpp,
// moe_ops.cpp and step.cpp hold the operations of those kinds.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/common/staging.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "kernels/cuda/gemm/gemm_routes.h"
#include "kernels/cuda/gemm/grouped_gemm_params.h"
#include "kernels/cuda/gemm/quantized/units_gemm.h"
#include "kernels/cuda/moe/moe_params.h"
#include "kernels/cuda/sampling/sampling_params.h"
#include "kernels/cuda/step/side_copies.h"
#include "kernels/cuda/step/step_key.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

// Rank 2 [n, dim] or rank 3 [n, heads, dim].
View view_of(const TensorView& view);
// A contiguous view of the same shape.
View packed(View like, DType type, void* data);
// Where a view starts that leaves out the first columns.
void* offset_columns(const View& view, int64_t columns);

// How packed matrices of `groups` become bf16 for one GEMM: `rows` of as many matrices as go together.
struct DequantGemmPlan {
  DequantGemmPlan(const Matrix& matrix, int64_t groups, DType entries);
  int64_t bytes() const { return rows * together * row_bytes; }
  int32_t parts;
  int64_t row_bytes, rows = 0, together = 0;
};
// Whether decoding a packed matrix once beats decoding it in every tile of `count` entries of that type.
bool dequant_gemm_pays(const Matrix& matrix, DType entries, int64_t count);
// A matrix as a panel has it.
Matrix in_panel(Matrix matrix);

// GEMMs with matrices in units: their parameters, and the way they take.
UnitsGemmParams units_params(const GemmParams& gemm, bool gated, int32_t activation);
Route units_route(const UnitsGemmParams& params);

class CudaBackendImpl final : public CudaBackend {
 public:
  CudaBackendImpl(const CudaOptions& options, std::string name, int processors);
  ~CudaBackendImpl() override;

  std::string name() const override { return name_; }
  DType activation_type() const override { return activations_; }
  void expect_routing() override;
  bool supports_kv(DType) const override { return true; }

  Memory allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  Memory allocate_kv(DType dtype, std::array<int64_t, 4> shape) override;
  Weight prepare(Weight weight) override;
  Memory upload(TensorView host) override;
  void download(TensorView out, TensorView x) override;
  void copy_floats(float* out, TensorView x);
  void begin(const RaggedBatch& batch) override;

  void embed(TensorView out, const Weight& table, std::span<const int32_t> ids) override;
  void matmul(TensorView out, TensorView x, const Weight& weight) override;
  void matmul_heads(TensorView out, TensorView x, std::span<const Weight> weights) override;
  void rms_norm(TensorView out, TensorView x, TensorView gain, float eps) override;
  void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps) override;
  void add(TensorView out, TensorView a, TensorView b, float b_scale) override;
  void copy(TensorView out, TensorView x) override;
  void gate_rows(TensorView x, TensorView gate) override;
  void scale(TensorView x, float factor) override;
  void softcap(TensorView x, float cap) override;
  void clamp(TensorView x, float limit) override;
  void activate(TensorView out, TensorView x, Activation activation) override;
  void gated(TensorView out, TensorView gate_up, Activation activation) override;
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override;
  void matmul_gated(TensorView out, TensorView wide, TensorView x, const Weight& gate_up,
                    Activation activation) override;
  void rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                     const RaggedBatch& batch) override;
  void add_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) override;
  void matmul_add_rms_norm(TensorView out, const Residual& x, const DeferredMatmul& gemm,
                           const RmsGain& gain) override;

  void rope_angles(TensorView angles, const RaggedBatch&, const RopeTable& table) override;
  void rope(TensorView x, TensorView angles, RopeStyle style) override;
  void write_kv(const PagedKv& kv, TensorView k, TensorView v, const RaggedBatch&) override;
  void attend(TensorView out, TensorView q, const PagedKv&, const RaggedBatch&,
              const AttentionShape&) override;
  void copy_blocks(const PagedKv&, std::span<const std::pair<BlockId, BlockId>> moves) override;

  void route(TensorView ids, TensorView weights, TensorView logits, const Routing&) override;
  void moe_ffn(TensorView out, TensorView x, TensorView ids, TensorView weights, const ExpertBank&) override;

  void run_step(const std::function<void()>& body) override;
  void argmax(TensorView ids, TensorView x) override;
  void embed_device(TensorView out, const Weight& table, TensorView ids) override;
  int slots() const override;
  void sample(TensorView logits, std::span<const SampleArgs> rows,
              std::span<const LogitAdjustment> edits) override;
  void send_rows(TensorView x, float* pinned) override;
  int64_t send_sampled(size_t count) override;
  std::span<const SampledToken> wait_sampled(int64_t ticket) override;
  std::shared_ptr<std::byte> allocate_pinned(size_t bytes) override;
  void copy_to_host(std::byte* pinned, std::span<const Piece> from) override;
  void copy_from_host(std::span<const Piece> to, const std::byte* pinned) override;
  bool copies_pending() const override { return copies_->pending(); }
  void synchronize() override;
  Room room() const override;
  void set_tuning(bool on) override { lt_->set_search(on); }
  std::string failure() const override;
  int graphs() const override { return static_cast<int>(graphs_.size()); }

 private:
  // A block table of this step, as the device sees it.
  struct Table {
    int index;
    TableView view;
    std::vector<int32_t> row_begin;  // host copy
    std::vector<int32_t> lengths;    // host; tokens of context of each sequence
    const int32_t* last_length;      // [sequences]
  };
  struct Plan {
    FlashShape shape;
    int table, first;  // first: sequence that the plan starts with
    bool hopper;
    FlashPlan plan;
    void* schedule;
  };
  // Layers whose attention of tokens by themselves is shared out alike.
  struct DecodeAttentionKind {
    const Table* table;
    int kv_heads, window;
    int64_t first, count;  // tokens
    bool whole;
    bool operator==(const DecodeAttentionKind&) const = default;
  };
  struct OnePlan {
    DecodeAttentionKind kind;
    const int32_t* numbers;  // on the device
  };
  struct Batch {
    const void* identity = nullptr;  // of the caller's positions
    int64_t tokens = 0;
    int sequences = 0;
    bool consecutive = true;  // every sequence runs neighbouring positions
    int singles = 0;          // leading sequences that run one token each
    const int32_t* positions = nullptr;
    const int32_t* sequence = nullptr;
    const int32_t* query_begin = nullptr;
    const int32_t* rest_begin =
        nullptr;  // first token of the other sequences, counted from the first of theirs
    std::vector<int32_t> query_begin_host, rest_begin_host, positions_host, sequence_host;
    std::deque<Table> tables;
    std::vector<OnePlan> one_plans;
  };
  // Tokens on their way to the host: of the last sample on the device, of the last few in pinned memory.
  struct Sampled {
    DeviceBuffer device;
    PinnedBuffer host[kTickets];
    cudaEvent_t there[kTickets] = {};
    size_t rows[kTickets] = {};
    size_t capacity = 0;
    int64_t sent = 0;
  };
  // Device pointers of a list of matrices, one list per matrix of their (alike) weights.
  struct PointerTable {
    std::weak_ptr<const void> owner;
    std::vector<Matrix> matrices;  // shape of each; data is null
    std::vector<const void* const*> weights;
    std::vector<const float* const*> biases;  // null where the weights have none
    const void* maps = nullptr;  // [weights] of write_expert_map(); null but for single bf16 matrices
    DeviceBuffer memory, map_memory;
  };
  struct ExpertMemory {
    void *entries, *panel;
  };

  template <class Params>
  void issue(void (*launch)(const Params&, Stream), const Params& params) {
    if (mode_ == Mode::Describe) {
      key_.add(reinterpret_cast<const void*>(launch));
      key_.add_bytes(&params, sizeof params);
    } else {
      launch(params, stream_);
    }
  }

  void pointwise(const PointwiseParams& params) { issue(launch_pointwise, params); }
  void norm(NormParams params);
  void gemm(const GemmParams& params);
  void gemm_plain(const GemmParams& params);
  bool library_sum(const GemmParams& p);
  bool cublaslt_gemm(const GemmParams& params);
  void library_call(const CublasLtProblem& gemm);
  bool cublaslt_gemm_fp8(const GemmParams& params);
  void add_bias(const GemmParams& params);
  void fixed_gemm(const GemmParams& params);
  void gemm_f32(const GemmParams& params);
  bool gemm_split(const GemmParams& params);
  void gemm_tile(const GemmParams& params);
  void dequant_gemm(const GemmParams& params);
  void units_gemm(const UnitsGemmParams& params);
  void gemm_of_blocks(const GemmParams& params);
  // A matrix in units as bf16, in memory that the next call takes again; `fits` says whether there is enough for all rows.
  Matrix unpacked(const Matrix& matrix);
  static bool unpacked_fits(const Matrix& matrix);
  void reserve_unpacked(const Matrix& matrix);
  const PointerTable& pointer_table(std::span<const Weight> weights);
  void grouped_gemm(const GroupedGemmParams& common, const PointerTable& table);
  void make_expert_maps(PointerTable& table, std::span<const Weight> weights);
  // moe_ffn() for few tokens; false, and nothing done, where it does not fit.
  bool moe_gemv(TensorView out, TensorView x, TensorView ids, TensorView weights, const ExpertBank& bank);
  // Whether grouped_gemm() is made for the matrices, and worth it.
  bool grouped_gemm_fits(const PointerTable& table, DType entries, int64_t experts, int64_t pairs);
  static int64_t panel_bytes(const PointerTable& table, int64_t experts, DType entries);
  // grouped_gemm() on warpgroup instructions. `memory`: for the rows of x, and for panels.
  void grouped_gemm_sm90(const GroupedGemmParams& common, const PointerTable& table, ExpertMemory memory);
  // The GEMM `all` describes but for its matrices: each is `matrix`, those of several groups at `matrices`.
  void dequant_grouped_gemm(const GroupedGemmSm90Params& all, const Matrix& matrix,
                            const void* const* matrices, void* panel);
  bool dequant_gemm_f32(const GemmParams& params);  // false, and nothing done, where it does not fit

  void reserve_sampled(size_t rows);
  // In bf16, in scratch memory.
  View rounded(const View& wide);
  const Batch& batch_of(const RaggedBatch& batch);
  const Table& table_of(const RaggedBatch& batch, const PagedKv& kv);
  const Plan& plan_of(const FlashShape& shape, const Table& table, int first, bool hopper);
  void attend_rounded(const AttentionParams& params, const Table& table);
  void attend_on(const AttentionParams& params, const Table& table);
  int attend_singles(const AttentionParams& params, const Table& table);
  void attend_each(const AttentionParams& params, const Table& table);
  const int32_t* one_plan(const DecodeAttentionKind& wanted);
  void launch_or_record(const std::function<void()>& body);

  std::string name_;
  int processors_;
  WeightStorage storage_;
  bool deterministic_;
  Activations wanted_activations_;
  DType activations_;
  cudaStream_t stream_ = nullptr;
  Mode mode_ = Mode::Eager;
  StepKey key_;
  std::optional<Staging> staging_;
  std::optional<SideCopies> copies_;
  std::optional<HostUpload> uploads_;  // between the first weight and the first step
  std::optional<CublasLtGemm> lt_;
  Scratch scratch_;   // results between the kernels of one operation
  Scratch unpacked_;  // a matrix in units as bf16
  Scratch flash_partial_;
  DeviceBuffer one_workspace_;  // of the attention of single tokens
  DeviceBuffer argmax_keys_;
  DeviceBuffer slots_;  // int32 [slots()]
  Sampled sampled_;
  int64_t argmax_rows_ = 0;
  Batch batch_;
  std::vector<Plan> plans_;
  std::map<const void*, PointerTable> pointer_tables_;
  std::unordered_map<StepKey::Value, cudaGraphExec_t, StepKey::Hash> graphs_;
  std::unordered_set<StepKey::Value, StepKey::Hash> seen_;
};

}  // namespace sluice::kernels::cuda
