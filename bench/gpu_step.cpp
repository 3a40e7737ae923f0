// Times whole steps of a Llama-3.1-8B shape on the CUDA back-end, made of Backend calls alone, next to their
// floors.
//   bench_gpu decode [batch...]   one token for each of `batch` sequences with 576 tokens of context, as replayed steps
//   bench_gpu context=N ...       the same with N tokens of context
//   bench_gpu small ...           the same with a Qwen3-0.6B shape
//   bench_gpu parts [batch...]    what each operation costs in such a step
//   bench_gpu alone BATCH PART... one of them over and over for two seconds, to look at the GPU's power and clock
//   bench_gpu prefill [parts]     16 prompts of 2,048 tokens, four to a step
//   bench_gpu short               a few small steps of both kinds, for compute-sanitizer
//   bench_gpu fp8 ...             the same with fp8 weights, but for the embedding
//   bench_gpu kv=fp8 ...          the same with a KV cache in fp8
//   bench_gpu deterministic ...   the same with results that do not depend on the batch
//   bench_gpu apart ...           the same without the kernel that runs all layers in one launch
// Weights and a bf16 cache are random (the same numbers in every layer, in memory of their own): zeros would run faster.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>

#include "gpu_bench.h"
#include "kernels/cuda/cuda.h"
#include "kernels/layer_stack.h"
#include "tensor/half.h"

namespace {

using namespace sluice;
using bench::kBytesPerSecond;
using bench::kOperationsPerSecond;
using bench::seconds;
using kernels::CudaBackend;
using kernels::Memory;
using kernels::PagedKv;
using kernels::RaggedBatch;
using kernels::Weight;

struct Shape {
  int64_t dim = 4096, heads = 32, kv_heads = 8, head_dim = 128, inner = 14336, vocab = 128256;
  int layers = 32, block_size = 64;
  double bytes_per_weight = 2.0;
  int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t layer_weights() const { return dim * (qkv() + heads * head_dim + 3 * inner); }
  double step_bytes() const {
    return bytes_per_weight * static_cast<double>(layers * layer_weights() + vocab * dim);
  }
  DType kv_type = DType::BF16;
  double kv_bytes_per_token() const {
    return 2.0 * static_cast<double>(info(kv_type).block_bytes * layers * kv_heads * head_dim);
  }
};

enum class Part : int { Embed, Norm, Qkv, Rope, Attend, Out, GateUp, Down, Head, Count };
constexpr std::array<std::string_view, 9> kParts{"embed", "norms",   "qkv",  "rope", "attend",
                                                 "out",   "gate+up", "down", "head"};

class Model {
 public:
  Model(CudaBackend& gpu, const Shape& shape, int64_t tokens, int64_t logit_rows, int64_t cache_tokens)
      : gpu_(gpu), s_(shape) {
    const int64_t cache_rows = cache_tokens * s_.kv_heads * s_.head_dim / s_.dim;
    pattern_ = HostTensor::make(DType::BF16, {std::max({s_.vocab, 2 * s_.inner, cache_rows}), s_.dim});
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> sample(1 << 16);
    for (uint16_t& value : sample) value = f32_to_bf16(normal(engine) * 0.7f / 64.0f);
    for (int64_t i = 0; i < pattern_.view.elements(); ++i)
      pattern_.view.at<uint16_t>()[i] = sample[(static_cast<uint64_t>(i) * 2654435761u >> 11) & 0xffffu];
    const double start = seconds();
    embedding_ = weight(s_.vocab, s_.dim, true);
    head_ = weight(s_.vocab, s_.dim);
    const std::vector<float> ones(static_cast<size_t>(s_.dim), 1.0f);
    const int64_t blocks = cache_tokens / s_.block_size;
    for (int i = 0; i < s_.layers; ++i) {
      Layer layer;
      layer.qkv = weight(s_.qkv(), s_.dim);
      layer.out = weight(s_.dim, s_.heads * s_.head_dim);
      layer.gate_up = weight(2 * s_.inner, s_.dim);
      layer.down = weight(s_.dim, s_.inner);
      layer.gain = gpu_.upload(TensorView::contiguous(const_cast<float*>(ones.data()), DType::F32, {s_.dim}));
      layer.k = cache(blocks), layer.v = cache(blocks);
      layer.kv.k = layer.k.view;
      layer.kv.v = layer.v.view;
      layers_.push_back(std::move(layer));
    }
    fmt::print("# weights uploaded in {:.2f} s\n", seconds() - start);
    const auto activations = [&](int64_t width) { return gpu_.allocate(DType::BF16, {tokens, width}); };
    x_ = activations(s_.dim), branch_ = activations(s_.dim), normed_ = activations(s_.dim);
    qkv_ = activations(s_.qkv()), mixed_ = activations(s_.heads * s_.head_dim);
    wide_ = activations(2 * s_.inner), inner_ = activations(s_.inner);
    angles_ = gpu_.allocate(DType::F32, {tokens, s_.head_dim / 2, 2});
    rows_ = gpu_.allocate(DType::BF16, {logit_rows, s_.dim});
    logits_ = gpu_.allocate(DType::BF16, {logit_rows, s_.vocab});
    ids_ = gpu_.allocate(DType::I32, {logit_rows});
    std::vector<float> frequencies(static_cast<size_t>(s_.head_dim / 2));
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] =
          static_cast<float>(std::pow(5e5, -2.0 * static_cast<double>(i) / static_cast<double>(s_.head_dim)));
    frequencies_ = gpu_.upload(
        TensorView::contiguous(frequencies.data(), DType::F32, {static_cast<int64_t>(frequencies.size())}));
    shape_.heads = static_cast<int>(s_.heads);
    shape_.kv_heads = static_cast<int>(s_.kv_heads);
    shape_.key_dim = shape_.value_dim = static_cast<int>(s_.head_dim);
    shape_.scale = 1.0f / std::sqrt(static_cast<float>(s_.head_dim));
  }

  // Tokens: `ids` from the host where given, else those the last step chose. Logits of `wanted` rows, or of all.
  // Only the operations in `parts` run.
  void step(const RaggedBatch& batch, std::span<const int32_t> ids, std::span<const int32_t> wanted,
            unsigned parts = ~0u) {
    const auto has = [&](Part part) { return (parts >> static_cast<int>(part) & 1u) != 0; };
    const int64_t n = batch.tokens();
    const auto rows = [&](const Memory& memory) { return memory.view.rows(0, n); };
    const TensorView x = rows(x_), branch = rows(branch_), normed = rows(normed_), qkv = rows(qkv_);
    const TensorView angles = rows(angles_);
    // A branch's last GEMM and what follows it.
    const auto end_branch = [&](Part part, TensorView in, const Weight& weight, const Layer& next) {
      const kernels::RmsGain gain{next.gain.view, 1e-5f, true};
      if (has(part) && has(Part::Norm))
        return gpu_.matmul_add_rms_norm(normed, {x, branch}, {in, &weight}, gain);
      if (has(part)) gpu_.matmul(branch, in, weight);
      if (has(Part::Norm)) gpu_.add_rms_norm(normed, {x, branch}, gain);
    };
    gpu_.begin(batch);
    if (has(Part::Embed)) {
      if (ids.empty()) {
        gpu_.embed_device(x, embedding_, ids_.view.rows(0, n));
      } else {
        gpu_.embed(x, embedding_, ids);
      }
      const TensorView& row = frequencies_.view;
      gpu_.rope_angles(angles, batch,
                       {TensorView::contiguous(row.data, row.dtype, {1, row.elements()}, row.device)});
    }
    const bool whole = parts == ~0u && run_stack(x, angles, batch);
    const size_t layers = whole ? 0 : layers_.size();
    if (has(Part::Norm)) gpu_.rms_norm(normed, x, layers_[0].gain.view, 1e-5f);
    for (size_t i = 0; i < layers; ++i) {
      const Layer& layer = layers_[i];
      if (has(Part::Qkv)) gpu_.matmul(qkv, normed, layer.qkv);
      const TensorView q = qkv.columns_as_heads(0, s_.heads, s_.head_dim);
      const TensorView k = qkv.columns_as_heads(s_.heads * s_.head_dim, s_.kv_heads, s_.head_dim);
      const TensorView v =
          qkv.columns_as_heads((s_.heads + s_.kv_heads) * s_.head_dim, s_.kv_heads, s_.head_dim);
      if (has(Part::Rope)) gpu_.rope_write_kv(layer.kv, {q, k, v}, angles, kernels::RopeStyle::NeoX, batch);
      if (has(Part::Attend))
        gpu_.attend(rows(mixed_).columns_as_heads(0, s_.heads, s_.head_dim), q, layer.kv, batch, shape_);
      end_branch(Part::Out, rows(mixed_), layer.out, layer);
      if (has(Part::GateUp))
        gpu_.matmul_gated(rows(inner_), rows(wide_), normed, layer.gate_up, kernels::Activation::Silu);
      end_branch(Part::Down, rows(inner_), layer.down, layers_[(i + 1) % layers_.size()]);
    }
    if (!has(Part::Head)) return;
    TensorView last = normed;
    if (!wanted.empty()) {
      last = rows_.view.rows(0, static_cast<int64_t>(wanted.size()));
      gpu_.gather_rows(last, normed, wanted);
    }
    const TensorView logits = logits_.view.rows(0, last.dim(0));
    gpu_.matmul(logits, last, head_);
    gpu_.argmax(ids_.view.rows(0, last.dim(0)), logits);
  }

 private:
  struct Layer {
    Weight qkv, out, gate_up, down;
    Memory gain, k, v;
    PagedKv kv;
  };
  bool run_stack(const TensorView& x, const TensorView& angles, const RaggedBatch& batch) {
    auto* device = dynamic_cast<kernels::LayerStackDevice*>(&gpu_);
    if (device == nullptr) return false;
    std::vector<kernels::DenseLayer> layers;
    for (const Layer& layer : layers_)
      layers.push_back({&layer.qkv,
                        &layer.out,
                        &layer.gate_up,
                        &layer.down,
                        layer.gain.view,
                        layer.gain.view,
                        {},
                        {},
                        layer.kv});
    return device->run_layers(x, {layers, shape_, s_.inner, 1e-5f}, angles, batch);
  }
  Weight weight(int64_t rows, int64_t cols, bool table = false) {
    Weight w;
    w.table = table;
    w.parts = {TensorView::contiguous(pattern_.view.data, DType::BF16, {rows, cols})};
    w.rows = rows;
    w.cols = cols;
    return gpu_.prepare(std::move(w));
  }

  // Laid out as allocate_kv() does it.
  Memory cache(int64_t blocks) {
    if (s_.kv_type != DType::BF16)
      return gpu_.allocate_kv(s_.kv_type, {blocks, s_.block_size, s_.kv_heads, s_.head_dim});
    Memory memory = gpu_.upload(TensorView::contiguous(pattern_.view.data, DType::BF16,
                                                       {blocks, s_.kv_heads, s_.block_size, s_.head_dim}));
    memory.view = memory.view.swapped(1, 2);
    return memory;
  }

  CudaBackend& gpu_;
  Shape s_;
  HostTensor pattern_;
  Weight embedding_, head_;
  std::vector<Layer> layers_;
  Memory x_, branch_, normed_, qkv_, mixed_, wide_, inner_, angles_, rows_, logits_, ids_, frequencies_;
  kernels::AttentionShape shape_;
};

// `count` sequences that run positions [begin, end), each with blocks of its own, scattered.
struct Batch {
  std::vector<int32_t> query_begin{0}, positions, blocks, ids, last;
  std::vector<RaggedBatch::BlockTable> tables;

  Batch(int count, int begin, int end, int block_size, int64_t pool) {
    const int width = (end + block_size - 1) / block_size;
    for (int s = 0; s < count; ++s) {
      for (int p = begin; p < end; ++p) {
        positions.push_back(p);
        ids.push_back((s * 7919 + p * 31 + 13) % 1000);
      }
      query_begin.push_back(static_cast<int32_t>(positions.size()));
      last.push_back(static_cast<int32_t>(positions.size()) - 1);
    }
    int64_t step = 2654435761;
    while (std::gcd(step, pool) != 1) ++step;
    for (int64_t i = 0; i < int64_t{count} * width; ++i)
      blocks.push_back(static_cast<int32_t>(i * step % pool));
    tables = {{blocks, width}};
  }
  RaggedBatch view() const { return {query_begin, positions, tables}; }
};

void time_decode(CudaBackend& gpu, Model& model, const Shape& shape, int batch, int context, int64_t pool) {
  const Batch b(batch, context - 1, context, shape.block_size, pool);
  const RaggedBatch view = b.view();
  const auto run = [&] { gpu.run_step([&] { model.step(view, {}, {}); }); };
  const double begun = seconds();
  gpu.run_step([&] { model.step(view, b.ids, {}); });
  for (int i = 0; i < 4; ++i) run();
  gpu.synchronize();
  const double ready = seconds() - begun;
  const int repeats = batch <= 32 ? 120 : 80;
  double host = 0;
  const double start = seconds();
  for (int i = 0; i < repeats; ++i) {
    const double before = seconds();
    run();
    if (i < 2) host += (seconds() - before) / 2;  // later calls may wait for the device
  }
  gpu.synchronize();
  const double each = (seconds() - start) / repeats;
  const double floor = (shape.step_bytes() + shape.kv_bytes_per_token() * context * batch) / kBytesPerSecond;
  fmt::print(
      "decode  batch {:4d}  {:7.3f} ms  {:8.0f} tok/s   floor {:6.3f} ms ({:3.0f} %)   host {:5.0f} us   "
      "ready "
      "after {:.2f} s\n",
      batch, each * 1e3, batch / each, floor * 1e3, 100 * floor / each, host * 1e6, ready);
  std::fflush(stdout);
}

double time_steps(CudaBackend& gpu, const std::function<void()>& run, int repeats) {
  for (int i = 0; i < 3; ++i) run();
  gpu.synchronize();
  const double start = seconds();
  for (int i = 0; i < repeats; ++i) run();
  gpu.synchronize();
  return (seconds() - start) / repeats;
}

// What each operation costs in its place: the whole step less the step without it; and in a chain of its own kind.
void time_parts(CudaBackend& gpu, Model& model, const Shape& shape, const Batch& b, bool replay) {
  const RaggedBatch view = b.view();
  const auto time = [&](unsigned parts) {
    const auto body = [&] { model.step(view, b.ids, replay ? std::span<const int32_t>() : b.last, parts); };
    return time_steps(
        gpu, [&] { replay ? gpu.run_step(body) : body(); }, replay ? 20 : 4);
  };
  const double whole = time(~0u);
  fmt::print("parts   tokens {:5d}  whole {:.3f} ms; us per layer in place (alone):", view.tokens(),
             whole * 1e3);
  for (int part = 0; part < static_cast<int>(Part::Count); ++part) {
    const double scale = 1e6 / (part == 0 || part == static_cast<int>(Part::Head) ? 1 : shape.layers);
    fmt::print("  {} {:.1f} ({:.1f})", kParts[static_cast<size_t>(part)],
               (whole - time(~(1u << part))) * scale, time(1u << part) * scale);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void time_alone(CudaBackend& gpu, Model& model, const Shape& shape, const Batch& b, std::string_view name) {
  const auto found = std::find(kParts.begin(), kParts.end(), name);
  if (found == kParts.end()) throw std::runtime_error(fmt::format("no part is called {}", name));
  const RaggedBatch view = b.view();
  const auto run = [&] {
    gpu.run_step([&] { model.step(view, b.ids, {}, 1u << (found - kParts.begin())); });
  };
  const double start = seconds();
  double each = 0;
  while (seconds() < start + 2) each = time_steps(gpu, run, 20);
  const double scale = 1e6 / (found == kParts.begin() || *found == "head" ? 1 : shape.layers);
  fmt::print("alone   tokens {:5d}  {} {:.1f} us in the end\n", view.tokens(), name, each * scale);
  std::fflush(stdout);
}

void time_prefill(CudaBackend& gpu, Model& model, const Shape& shape, int64_t pool) {
  const int length = 2048, together = 4, chunks = 4;
  const Batch b(together, 0, length, shape.block_size, pool);
  const RaggedBatch view = b.view();
  const auto run = [&] { model.step(view, b.ids, b.last); };
  run();
  run();
  gpu.synchronize();
  const double start = seconds();
  for (int i = 0; i < 2 * chunks; ++i) run();
  gpu.synchronize();
  const double each = (seconds() - start) / (2 * chunks);
  const double tokens = double{length} * together;
  const double operations =
      2.0 * tokens * static_cast<double>(shape.layers * shape.layer_weights()) +
      2.0 * tokens * length * static_cast<double>(shape.layers * shape.heads * shape.head_dim);
  const double floor = operations / kOperationsPerSecond;
  fmt::print("prefill {} x {}  {:7.1f} ms  {:8.0f} tok/s   floor {:6.1f} ms ({:3.0f} %)\n", together, length,
             each * 1e3, tokens / each, floor * 1e3, 100 * floor / each);
  std::fflush(stdout);
}

void run_short(CudaBackend& gpu) {
  Shape shape;
  shape.dim = 512, shape.heads = 8, shape.kv_heads = 2, shape.head_dim = 64, shape.inner = 1024,
  shape.vocab = 1000;
  shape.layers = 2;
  Model model(gpu, shape, 512, 64, 64 * 64);
  const Batch prompt(3, 0, 100, shape.block_size, 64);
  for (int i = 0; i < 2; ++i) model.step(prompt.view(), prompt.ids, prompt.last);
  for (int batch : {1, 5, 20, 40}) {
    const Batch b(batch, 60, 61, shape.block_size, 64);
    for (int i = 0; i < 4; ++i) gpu.run_step([&] { model.step(b.view(), b.ids, {}); });
  }
  gpu.synchronize();
  fmt::print("short steps ran, {} graphs\n", gpu.graphs());
}

int run(int count, char** arguments) {
  kernels::CudaOptions options;
  Shape shape;
  int context = 576;
  constexpr std::string_view kContext = "context=", kArch = "arch=";
  for (; count > 1; --count, ++arguments) {
    if (std::string_view(arguments[1]).starts_with(kContext)) {
      context = std::max(1, std::atoi(arguments[1] + kContext.size()));
    } else if (std::string_view(arguments[1]) == "small") {
      shape.dim = 1024, shape.heads = 16, shape.inner = 3072, shape.vocab = 151936, shape.layers = 28;
    } else if (std::string_view(arguments[1]) == "fp8") {
      options.weights = kernels::WeightStorage::Fp8;
      shape.bytes_per_weight = 1.0;
    } else if (std::string_view(arguments[1]) == "kv=fp8") {
      shape.kv_type = DType::F8_E4M3;
    } else if (std::string_view(arguments[1]).starts_with(kArch)) {
      options.arch = std::atoi(arguments[1] + kArch.size());
    } else if (std::string_view(arguments[1]) == "deterministic") {
      options.deterministic = true;
    } else if (std::string_view(arguments[1]) == "apart") {
      options.whole_stack = false;
    } else {
      break;
    }
  }
  const std::string_view what = count > 1 ? arguments[1] : "";
  options.search = what != "short";
  auto made = kernels::make_cuda_backend(options);
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  CudaBackend& gpu = **made;
  fmt::print("# {}, {:.1f} GiB free\n", gpu.name(), static_cast<double>(gpu.room().free_bytes) / (1 << 30));
  if (what == "short") {
    run_short(gpu);
    return 0;
  }
  if (what == "decode" || what == "parts") {
    std::vector<int> batches;
    for (int i = 2; i < count; ++i) batches.push_back(std::atoi(arguments[i]));
    if (batches.empty()) batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
    const int64_t cache = int64_t{256} * (context / shape.block_size + 1) * shape.block_size;
    Model model(gpu, shape, 256, 256, cache);
    for (int batch : batches) {
      if (what == "decode") {
        time_decode(gpu, model, shape, batch, context, cache / shape.block_size);
      } else {
        time_parts(gpu, model, shape,
                   Batch(batch, context - 1, context, shape.block_size, cache / shape.block_size), true);
      }
    }
    return 0;
  }
  if (what == "alone") {
    const int batch = count > 2 ? std::atoi(arguments[2]) : 256;
    const int64_t blocks = int64_t{256} * (context / shape.block_size + 1);
    Model model(gpu, shape, 256, 256, blocks * shape.block_size);
    const Batch tokens(batch, context - 1, context, shape.block_size, blocks);
    for (int i = 3; i < count; ++i) time_alone(gpu, model, shape, tokens, arguments[i]);
    return 0;
  }
  if (what == "prefill") {
    const int64_t cache = 4 * 4096;
    Model model(gpu, shape, 8192, 8, cache);
    time_prefill(gpu, model, shape, cache / shape.block_size);
    if (count > 2)
      time_parts(gpu, model, shape, Batch(4, 0, 2048, shape.block_size, cache / shape.block_size), false);
    return 0;
  }
  fmt::print(stderr,
             "bench_gpu [small] [fp8] [kv=fp8] [deterministic] [apart] [context=N] decode [batch...] | parts "
             "[batch...] | alone BATCH PART... | prefill [parts] | short\n");
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  return bench::run_reporting([&] { return run(count, arguments); });
}
