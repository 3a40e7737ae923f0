// Start, memory and steps of the CUDA back-end.
#include "kernels/cuda/step/backend.h"

#include <fmt/format.h>

#include <numeric>

namespace sluice::kernels::cuda {

namespace {
constexpr size_t kMaxGraphs = 1024;
}

View view_of(const TensorView& view) {
  View v = blank<View>();
  v.data = view.data;
  v.n = view.dim(0);
  v.heads = view.rank == 3 ? view.dim(1) : 1;
  v.dim = view.dim(-1);
  v.stride_n = view.stride[0];
  v.stride_h = view.rank == 3 ? view.stride[1] : 0;
  SLUICE_CHECK(view.rank == 2 || view.rank == 3);
  v.type = view.dtype;
  SLUICE_CHECK((view.dtype == DType::BF16 || view.dtype == DType::F32) && view.device == Device::Cuda);
  SLUICE_CHECK(v.dim <= 1 || view.stride[static_cast<size_t>(view.rank) - 1] == 1);
  return v;
}

View packed(View like, DType type, void* data) {
  like.data = data;
  like.type = type;
  like.stride_h = like.dim;
  like.stride_n = like.heads * like.dim;
  return like;
}

void* offset_columns(const View& view, int64_t columns) {
  return static_cast<std::byte*>(view.data) + columns * (view.type == DType::F32 ? 4 : 2);
}

CudaBackendImpl::CudaBackendImpl(const CudaOptions& options, std::string name, int processors)
    : name_(std::move(name)),
      processors_(processors),
      storage_(options.weights),
      deterministic_(options.deterministic),
      wanted_activations_(options.activations),
      activations_(options.activations == Activations::F32 ? DType::F32 : DType::BF16) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  staging_.emplace(stream_);
  copies_.emplace(stream_, *staging_);
  lt_.emplace(options.workspace_bytes, options.search);
  one_workspace_ = allocate_device(one_workspace_bytes());
  check(cudaMemsetAsync(one_workspace_.get(), 0, one_workspace_bytes(), stream_), "memset");
  slots_ = allocate_device(static_cast<size_t>(slots()) * sizeof(int32_t));
  check(cudaMemsetAsync(slots_.get(), 0, static_cast<size_t>(slots()) * sizeof(int32_t), stream_), "memset");
  for (cudaEvent_t& event : sampled_.there)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
}

CudaBackendImpl::~CudaBackendImpl() {
  cudaStreamSynchronize(stream_);
  for (auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (cudaEvent_t event : sampled_.there) cudaEventDestroy(event);
  uploads_.reset();
  copies_.reset();
  staging_.reset();
  cudaStreamDestroy(stream_);
}

void CudaBackendImpl::expect_routing() {
  if (wanted_activations_ == Activations::Auto) activations_ = DType::F32;
}

Memory CudaBackendImpl::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape, Device::Cuda);
  const auto bytes = static_cast<size_t>(view.bytes());
  DeviceBuffer memory = allocate_device(bytes);
  view.data = memory.get();
  check(cudaMemsetAsync(view.data, 0, bytes, stream_), "memset");
  return {view, std::shared_ptr<void>(std::move(memory))};
}

// Attention takes one head of a block at a time.
Memory CudaBackendImpl::allocate_kv(DType dtype, std::array<int64_t, 4> shape) {
  Memory memory = allocate(dtype, {shape[0], shape[2], shape[1], shape[3]});
  memory.view = memory.view.swapped(1, 2);
  return memory;
}

Weight CudaBackendImpl::prepare(Weight weight) {
  if (!uploads_) uploads_.emplace(stream_);
  const UploadOptions options{storage_, activations_ == DType::BF16 && !deterministic_};
  std::shared_ptr<const DeviceWeight> uploaded = upload_weight(weight, options, *uploads_, stream_);
  weight.parts.clear();
  for (const Matrix& matrix : uploaded->matrices) {
    reserve_unpacked(matrix);
    TensorView part = TensorView::contiguous(const_cast<void*>(matrix.data), matrix.type,
                                             {matrix.rows, matrix.cols}, Device::Cuda);
    if (matrix.type == DType::BF16) part.stride[0] = matrix.row_bytes / 2;
    if (matrix.scales != nullptr) part.stride[0] = matrix.row_bytes;
    weight.parts.push_back(part);
  }
  if (uploaded->bias != nullptr) {
    weight.bias =
        TensorView::contiguous(const_cast<float*>(uploaded->bias), DType::F32, {weight.rows}, Device::Cuda);
  }
  weight.packed = std::move(uploaded);
  return weight;
}

Memory CudaBackendImpl::upload(TensorView host) {
  SLUICE_CHECK(host.is_contiguous() && host.device == Device::Cpu);
  const auto bytes = static_cast<size_t>(host.bytes());
  DeviceBuffer memory = allocate_device(bytes);
  check(cudaMemcpyAsync(memory.get(), host.data, bytes, cudaMemcpyHostToDevice, stream_), "upload");
  check(cudaStreamSynchronize(stream_), "upload");
  host.data = memory.get();
  host.device = Device::Cuda;
  return {host, std::shared_ptr<void>(std::move(memory))};
}

// In the order of the stream; `out` may be read once that has come so far.
void CudaBackendImpl::copy_floats(float* out, TensorView x) {
  const size_t bytes = static_cast<size_t>(x.elements()) * sizeof(float);
  if (x.dtype == DType::BF16 || !x.is_contiguous()) {
    ConvertParams p = blank<ConvertParams>();
    p.x = view_of(x);
    p.out = packed(p.x, DType::F32, scratch_.at_least(bytes));
    issue(launch_convert, p);
    x.data = p.out.data;
  } else {
    SLUICE_CHECK(x.dtype == DType::F32);
  }
  check(cudaMemcpyAsync(out, x.data, bytes, cudaMemcpyDeviceToHost, stream_), "download");
}

void CudaBackendImpl::download(TensorView out, TensorView x) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  SLUICE_CHECK(out.is_contiguous() && out.elements() == x.elements());
  if (x.elements() == 0) return;
  if (out.dtype == DType::F32) {
    copy_floats(static_cast<float*>(out.data), x);
  } else {
    SLUICE_CHECK(x.dtype == out.dtype && x.is_contiguous());
    check(
        cudaMemcpyAsync(out.data, x.data, static_cast<size_t>(out.bytes()), cudaMemcpyDeviceToHost, stream_),
        "download");
  }
  check(cudaStreamSynchronize(stream_), "download");
}

void CudaBackendImpl::run_step(const std::function<void()>& body) {
  SLUICE_CHECK(mode_ == Mode::Eager);
  struct BackToEager {
    Mode& mode;
    ~BackToEager() { mode = Mode::Eager; }
  } guard{mode_};
  mode_ = Mode::Describe;
  do {
    staging_->start_step();
    plans_.clear();
    key_.reset();
    body();
  } while (staging_->take_grown());
  staging_->flush();
  staging_->rewind();
  mode_ = Mode::Issue;
  launch_or_record(body);
}

// The first time a step is seen it just runs, which also loads its kernels: that cannot be done while
// recording.
void CudaBackendImpl::launch_or_record(const std::function<void()>& body) {
  const StepKey::Value key = key_.value();
  if (const auto found = graphs_.find(key); found != graphs_.end()) {
    return check(cudaGraphLaunch(found->second, stream_), "step");
  }
  if (seen_.insert(key).second) return body();
  if (graphs_.size() >= kMaxGraphs) {
    check(cudaStreamSynchronize(stream_), "waiting for the device");
    for (auto& [old, graph] : graphs_) cudaGraphExecDestroy(graph);
    graphs_.clear();
  }
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  try {
    body();
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(stream_, &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
    throw;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), "recording a step");
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "recording a step");
  graphs_.emplace(key, executable);
  check(cudaGraphLaunch(executable, stream_), "step");
}

}  // namespace sluice::kernels::cuda

namespace sluice::kernels {

namespace {

// At least one.
Result<int> count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && count == 0)) {
    return Error{ErrorCode::Unavailable, "no NVIDIA driver or device"};
  }
  if (error != cudaSuccess) {
    return Error{ErrorCode::Unavailable, fmt::format("CUDA does not start: {}", cudaGetErrorString(error))};
  }
  return count;
}

}  // namespace

Result<std::vector<std::string>> describe_cuda_devices() {
  const Result<int> count = count_devices();
  if (!count) return count.error();
  std::vector<std::string> devices;
  for (int device = 0; device < *count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      devices.push_back(fmt::format("device {} does not answer", device));
      continue;
    }
    devices.push_back(fmt::format("{}, sm_{}{}, {:.1f} GiB", properties.name, properties.major,
                                  properties.minor,
                                  static_cast<double>(properties.totalGlobalMem) / (1 << 30)));
  }
  return devices;
}

Result<std::unique_ptr<CudaBackend>> make_cuda_backend(const CudaOptions& options) {
  const Result<int> count = count_devices();
  if (!count) return count.error();
  if (options.device < 0 || options.device >= *count) {
    return Error{ErrorCode::NotFound,
                 fmt::format("CUDA device {}: this machine has {}", options.device, *count)};
  }
  cudaDeviceProp properties{};
  if (cudaSetDevice(options.device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, options.device) != cudaSuccess) {
    return Error{ErrorCode::Unavailable, fmt::format("CUDA device {} does not answer", options.device)};
  }
  if (properties.major < 9) {
    return Error{ErrorCode::Unsupported, fmt::format("{} has compute capability {}.{}: 9.0 is needed",
                                                     properties.name, properties.major, properties.minor)};
  }
  try {
    auto name = fmt::format("cuda {} sm_{}{}", properties.name, properties.major, properties.minor);
    return std::unique_ptr<CudaBackend>(
        std::make_unique<cuda::CudaBackendImpl>(options, std::move(name), properties.multiProcessorCount));
  } catch (const DeviceError& failure) {
    return Error{ErrorCode::Unavailable, failure.what()};
  }
}

}  // namespace sluice::kernels
