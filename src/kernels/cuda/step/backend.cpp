#include "kernels/cuda/step/backend.h"

#include "base/check.h"

namespace sluice::kernels::cuda {

CudaBackendImpl::CudaBackendImpl(const CudaOptions& options, const StepContext::Options& device,
                                 std::string name)
    : name_(std::move(name)),
      storage_(options.weights),
      wanted_activations_(options.activations),
      activations_(options.activations == Activations::F32 ? DType::F32 : DType::BF16),
      step_(device),
      transfers_(step_),
      sampling_(step_),
      tokens_(step_, sampling_.slots()),
      gemm_(step_, options),
      attention_(step_),
      stack_(step_, attention_, options.whole_stack),
      key_weights_(step_),
      chosen_(step_, attention_),
      latent_(step_, attention_, gemm_),
      moe_(step_),
      recurrent_(step_),
      graphs_(step_) {}

// What the dispatchers own may still be in use.
CudaBackendImpl::~CudaBackendImpl() {
  step_.use_device();
  cudaStreamSynchronize(step_.stream);
}

void CudaBackendImpl::expect_eager() const {
  SLUICE_CHECK(step_.mode == Mode::Eager);
  step_.use_device();
}

void CudaBackendImpl::expect_magnified_errors() {
  if (wanted_activations_ == Activations::WideWhereMagnified) activations_ = DType::F32;
}

Memory CudaBackendImpl::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  step_.use_device();
  return transfers_.allocate(dtype, shape);
}

// Attention takes one head of a block at a time.
Memory CudaBackendImpl::allocate_kv(DType dtype, std::array<int64_t, 4> shape) {
  Memory memory = allocate(dtype, {shape[0], shape[2], shape[1], shape[3]});
  memory.view = memory.view.swapped(1, 2);
  return memory;
}

Weight CudaBackendImpl::prepare(Weight weight) {
  step_.use_device();
  const bool units = keeps_units(step_.arch, gemm_mode(activations_, step_.deterministic));
  const auto upload = [&](Weight run) {
    Weight prepared = transfers_.prepare(std::move(run), {storage_, units});
    for (const Matrix& matrix : device_weight(prepared).matrices) gemm_.reserve(matrix);
    return prepared;
  };
  Weight prepared = weight.listed ? upload(std::move(weight)) : prepare_runs(std::move(weight), upload);
  if (!prepared.table) even_step_.add(prepared.rows, prepared.cols);
  return prepared;
}

int64_t CudaBackendImpl::even_step_tokens() const {
  int device = 0, processors = 0;
  step_.use_device();
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  return even_step_.tokens(processors);
}

Memory CudaBackendImpl::upload(TensorView host) {
  step_.use_device();
  return transfers_.upload(host);
}

bool CudaBackendImpl::weigh_keys(std::span<float> largest, std::span<const KeyWeightLayer> layers, int rows,
                                 int tokens) {
  expect_eager();
  return key_weights_.weigh(largest, layers, rows, tokens);
}

void CudaBackendImpl::download(TensorView out, TensorView x) {
  expect_eager();
  transfers_.download(out, x);
}

void CudaBackendImpl::begin(const RaggedBatch& batch) {
  step_.use_device();
  if (step_.mode == Mode::Eager) {
    step_.staging.start_step();
    attention_.start_step();
    transfers_.end_loading();
  }
  attention_.begin(batch);
  recurrent_.begin();
}

void CudaBackendImpl::matmul_gated(TensorView out, TensorView wide, TensorView x, const Weight& gate_up,
                                   Activation activation) {
  if (gemm_.matmul_gated(out, x, gate_up, activation)) return;
  matmul(wide, x, gate_up);
  // The matrix behind takes fp8 as this one does: its tokens are rounded straight from the gate, where there are enough of
  // them that a block for each is no worse than many.
  constexpr int64_t kManyTokens = 1024;
  tokens_.gated(out, wide, activation, x.dim(0) >= kManyTokens && gemm_.rounds_tokens(wide, x, gate_up));
}

void CudaBackendImpl::matmul_add_rms_norm(TensorView out, const Residual& x, const DeferredMatmul& gemm,
                                          const RmsGain& gain) {
  if (x.b_scale == 1.0f && gemm_.matmul_add_norm(out, x.sum, gemm, gain)) return;
  if (x.b_scale == 1.0f && gemm_.matmul_add(x.sum, gemm.x, *gemm.weight))
    return rms_norm(out, x.sum, gain.gain, gain.eps);
  matmul(x.b, gemm.x, *gemm.weight);
  add_rms_norm(out, x, gain);
}

void CudaBackendImpl::rope_write_kv(const PagedKv& kv, const QkvHeads& x, TensorView angles, RopeStyle style,
                                    const RaggedBatch& batch) {
  if (!attention_.rope_write_kv(kv, x, angles, style, batch))
    CudaBackend::rope_write_kv(kv, x, angles, style, batch);
}

void CudaBackendImpl::copy_blocks(const PagedKv& kv, std::span<const std::pair<BlockId, BlockId>> moves) {
  step_.use_device();
  attention_.copy_blocks(kv, moves);
}

void CudaBackendImpl::run_step(const std::function<void()>& body) {
  expect_eager();
  step_.flush();
  struct BackToEager {
    StepContext& step;
    ~BackToEager() {
      step.drop_deferred();
      step.mode = Mode::Eager;
    }
  } guard{step_};
  const auto whole = [&] {
    body();
    step_.flush();
  };
  step_.mode = Mode::Describe;
  do {
    step_.staging.start_step();
    attention_.start_step();
    step_.key.reset();
    whole();
  } while (step_.staging.take_grown());
  step_.staging.flush();
  step_.staging.rewind();
  step_.mode = Mode::Issue;
  graphs_.run(whole);
  step_.staging.go_on();
}

void CudaBackendImpl::send_rows(TensorView x, float* pinned) {
  expect_eager();
  if (x.elements() > 0) transfers_.copy_floats(pinned, x);
}

std::shared_ptr<std::byte> CudaBackendImpl::allocate_pinned(size_t bytes) {
  step_.use_device();
  transfers_.side_copies().prepare();
  std::shared_ptr<void> memory = cuda::allocate_pinned(bytes);
  return {memory, static_cast<std::byte*>(memory.get())};
}

void CudaBackendImpl::copy_to_host(std::byte* pinned, std::span<const Piece> from) {
  expect_eager();
  transfers_.side_copies().to_host(pinned, from);
}

void CudaBackendImpl::copy_from_host(std::span<const Piece> to, const std::byte* pinned) {
  expect_eager();
  transfers_.side_copies().from_host(to, pinned);
}

void CudaBackendImpl::synchronize() {
  step_.use_device();
  step_.flush();
  check(cudaStreamSynchronize(step_.stream), "waiting for the device");
  transfers_.side_copies().wait();
}

AsyncDevice::Room CudaBackendImpl::room() const {
  step_.use_device();
  Room room;
  check(cudaMemGetInfo(&room.free_bytes, &room.total_bytes), "memory query");
  return room;
}

// A failed kernel leaves its error in every later call; running out of memory does not.
std::string CudaBackendImpl::failure() const {
  step_.use_device();
  cudaGetLastError();
  const cudaError_t error = cudaStreamSynchronize(step_.stream);
  return error == cudaSuccess ? std::string() : cudaGetErrorString(error);
}

}  // namespace sluice::kernels::cuda
