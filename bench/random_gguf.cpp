// Writes a GGUF file of a known shape with random blocks of one type in all matrices, to measure speed with:
// random_gguf FILE TYPE [llama-3.1-8b | llama-3.2-1b | smollm2-135m | qwen3.5-0.8b | qwen3-moe-3b | tiny] [TOKENIZER.gguf], where TYPE
// is Q4_0, Q4_1, Q8_0, Q4_K, Q6_K, BF16, F16 or F32. Its tokenizer is that of the last file, which has no more tokens than the shape;
// without one it has none. qwen3-moe-3b is six layers of Qwen3-30B-A3B with half its experts and a small vocabulary.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gguf_header.h"

using sluice::bench::Header;
using sluice::bench::TokenizerReader;

namespace {

// Layers of the gated delta rule between those of attention, as arch qwen35 has them.
struct DeltaShape {
  int64_t interval, heads, head_dim,
      kernel;  // every interval-th layer attends; as many key heads as value heads
};
// Experts in the place of each layer's feed-forward, as arch qwen3moe has them.
struct MixtureShape {
  int64_t experts, used, inner;
};
struct Shape {
  std::string_view name;
  int64_t dim, layers, heads, kv_heads, head_dim, inner, vocab;
  std::optional<DeltaShape> delta{};
  std::optional<MixtureShape> mixture{};
};
constexpr Shape kShapes[] = {{"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256},
                             {"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256},
                             {"smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152},
                             {"qwen3.5-0.8b", 1024, 24, 8, 2, 256, 3584, 248320, DeltaShape{4, 16, 128, 4}},
                             {"qwen3-moe-3b", 2048, 6, 32, 4, 128, 6144, 32768, {}, MixtureShape{64, 8, 768}},
                             {"tiny", 512, 2, 8, 2, 64, 1024, 1024}};

// An f16 number of a block.
struct Scale {
  size_t place;
  uint16_t value;
};
// Numbers that make elements of a few hundredths, about as many above zero as below: where they had a mean, tokens would differ
// by little behind some layers, and all would choose the same experts.
struct Type {
  std::string_view name;
  uint32_t code;
  int64_t elements, bytes;
  std::vector<Scale> scales;
  uint8_t top = 0;  // plain types: the last byte of an element but for its sign
};
const Type kF32{"F32", 0, 1, 4, {}, 0x3c};
const Type kTypes[] = {{"Q4_0", 2, 32, 18, {{0, 0x1c00}}},
                       {"Q4_1", 3, 32, 20, {{0, 0x1c00}, {2, 0xa780}}},
                       kF32,
                       {"F16", 1, 1, 2, {}, 0x24},
                       {"BF16", 30, 1, 2, {}, 0x3c},
                       {"Q4_K", 12, 256, 144, {{0, 0x0040}, {2, 0x01e0}}},
                       {"Q8_0", 8, 32, 34, {{0, 0x0a00}}},
                       {"Q6_K", 14, 256, 210, {{208, 0x0010}}}};

struct Tensor {
  std::string name;
  int64_t rows, cols;   // cols 0: a vector
  float fill = 0;       // not 0: in f32, all elements this number
  int64_t experts = 0;  // matrices of this size, one behind the other; 0: one, which is no list
  bool router = false;  // random in F32, as files have routers
  bool plain() const { return fill != 0; }
  int64_t elements() const { return rows * std::max<int64_t>(cols, 1) * std::max<int64_t>(experts, 1); }
  const Type& type_of(const Type& matrices) const { return router || plain() ? kF32 : matrices; }
  int64_t bytes(const Type& matrices) const {
    const Type& type = type_of(matrices);
    return elements() / type.elements * type.bytes;
  }
};

void add_attention(std::vector<Tensor>& out, const Shape& s, const std::string& layer) {
  const auto add = [&](const char* name, int64_t rows, int64_t cols) {
    out.push_back({layer + name + ".weight", rows, cols});
  };
  add("attn_q", s.heads * s.head_dim * (s.delta ? 2 : 1), s.dim);  // with a gate for each query
  add("attn_k", s.kv_heads * s.head_dim, s.dim);
  add("attn_v", s.kv_heads * s.head_dim, s.dim);
  add("attn_output", s.dim, s.heads * s.head_dim);
  if (!s.delta && !s.mixture) return;
  out.push_back({layer + "attn_q_norm.weight", s.head_dim, 0, 1});
  out.push_back({layer + "attn_k_norm.weight", s.head_dim, 0, 1});
}

void add_delta(std::vector<Tensor>& out, const Shape& s, const std::string& layer) {
  const DeltaShape& d = *s.delta;
  const int64_t values = d.heads * d.head_dim;
  out.push_back({layer + "attn_qkv.weight", 3 * values, s.dim});
  out.push_back({layer + "attn_gate.weight", values, s.dim});
  out.push_back({layer + "ssm_conv1d.weight", 3 * values, d.kernel, 0.5f});
  out.push_back({layer + "ssm_dt.bias", d.heads, 0, 1});
  out.push_back({layer + "ssm_a", d.heads, 0, -1});
  out.push_back({layer + "ssm_beta.weight", d.heads, s.dim});
  out.push_back({layer + "ssm_alpha.weight", d.heads, s.dim});
  out.push_back({layer + "ssm_norm.weight", d.head_dim, 0, 1});
  out.push_back({layer + "ssm_out.weight", s.dim, values});
}

void add_mixture(std::vector<Tensor>& out, const Shape& s, const std::string& layer) {
  const MixtureShape& m = *s.mixture;
  out.push_back({layer + "ffn_gate_inp.weight", m.experts, s.dim, 0, 0, true});
  out.push_back({layer + "ffn_gate_exps.weight", m.inner, s.dim, 0, m.experts});
  out.push_back({layer + "ffn_up_exps.weight", m.inner, s.dim, 0, m.experts});
  out.push_back({layer + "ffn_down_exps.weight", s.dim, m.inner, 0, m.experts});
}

std::vector<Tensor> tensors_of(const Shape& s) {
  std::vector<Tensor> out{{"token_embd.weight", s.vocab, s.dim}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    out.push_back({layer + "attn_norm.weight", s.dim, 0, 1});
    if (s.delta && (i + 1) % s.delta->interval != 0) {
      add_delta(out, s, layer);
    } else {
      add_attention(out, s, layer);
    }
    out.push_back({layer + (s.delta ? "post_attention_norm.weight" : "ffn_norm.weight"), s.dim, 0, 1});
    if (s.mixture) {
      add_mixture(out, s, layer);
      continue;
    }
    out.push_back({layer + "ffn_gate.weight", s.inner, s.dim});
    out.push_back({layer + "ffn_up.weight", s.inner, s.dim});
    out.push_back({layer + "ffn_down.weight", s.dim, s.inner});
  }
  out.push_back({"output_norm.weight", s.dim, 0, 1});
  if (!s.delta) out.push_back({"output.weight", s.vocab, s.dim});
  return out;
}

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + 31) / 32 * 32;
}

void put_delta_keys(Header& keys, const Shape& s, const std::string& arch) {
  const DeltaShape& d = *s.delta;
  keys.key(arch + "attention.key_length", s.head_dim);
  keys.key(arch + "attention.value_length", s.head_dim);
  keys.key(arch + "rope.dimension_sections", {11, 11, 10, 0});
  keys.key(arch + "full_attention_interval", d.interval);
  keys.key(arch + "ssm.conv_kernel", d.kernel);
  keys.key(arch + "ssm.inner_size", d.heads * d.head_dim);
  keys.key(arch + "ssm.state_size", d.head_dim);
  keys.key(arch + "ssm.time_step_rank", d.heads);
  keys.key(arch + "ssm.group_count", d.heads);
}

void put_mixture_keys(Header& keys, const Shape& s, const std::string& arch) {
  keys.key(arch + "attention.key_length", s.head_dim);
  keys.key(arch + "attention.value_length", s.head_dim);
  keys.key(arch + "expert_count", s.mixture->experts);
  keys.key(arch + "expert_used_count", s.mixture->used);
  keys.key(arch + "expert_feed_forward_length", s.mixture->inner);
}

std::string header_of(const Shape& s, const Type& type, const std::vector<Tensor>& tensors,
                      const TokenizerReader* tokenizer) {
  Header keys;
  const std::string arch = s.delta ? "qwen35." : s.mixture ? "qwen3moe." : "llama.";
  keys.key("general.architecture", std::string_view(arch).substr(0, arch.size() - 1));
  keys.key(arch + "block_count", s.layers);
  keys.key(arch + "context_length", int64_t{8192});
  keys.key(arch + "embedding_length", s.dim);
  keys.key(arch + "feed_forward_length", s.inner);
  keys.key(arch + "attention.head_count", s.heads);
  keys.key(arch + "attention.head_count_kv", s.kv_heads);
  keys.key(arch + "attention.layer_norm_rms_epsilon", 1e-5f);
  keys.key(arch + "rope.freq_base", 500000.0f);
  keys.key(arch + "rope.dimension_count", s.delta ? s.head_dim / 4 : s.head_dim);
  keys.key(arch + "vocab_size", s.vocab);
  if (s.delta) put_delta_keys(keys, s, arch);
  if (s.mixture) put_mixture_keys(keys, s, arch);
  if (tokenizer == nullptr) {
    keys.key("tokenizer.ggml.model", "none");
  } else {
    keys.put_bytes(tokenizer->found(), tokenizer->count());
  }
  Header h;
  h.put(uint32_t{0x46554747});
  h.put(uint32_t{3});
  h.put(static_cast<uint64_t>(tensors.size()));
  h.put(keys.count());
  h.put_bytes(keys.bytes(), 0);
  int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    h.put_text(tensor.name);
    h.put(tensor.experts > 0 ? uint32_t{3} : tensor.cols > 0 ? uint32_t{2} : uint32_t{1});
    if (tensor.cols > 0) h.put(static_cast<uint64_t>(tensor.cols));
    h.put(static_cast<uint64_t>(tensor.rows));
    if (tensor.experts > 0) h.put(static_cast<uint64_t>(tensor.experts));
    h.put(tensor.type_of(type).code);
    h.put(static_cast<uint64_t>(offset));
    offset += aligned(tensor.bytes(type));
  }
  return h.aligned();
}

// Random blocks; a tensor takes them from a place of its own on.
std::vector<uint8_t> make_pattern(const Type& type) {
  std::mt19937 random(1);
  std::vector<uint8_t> pattern(static_cast<size_t>(type.bytes) * 65521);
  for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(random());
  for (size_t block = 0; block < pattern.size(); block += static_cast<size_t>(type.bytes))
    for (const Scale& scale : type.scales) std::memcpy(&pattern[block + scale.place], &scale.value, 2);
  for (size_t i = 0; type.top != 0 && i < pattern.size(); i += static_cast<size_t>(type.bytes)) {
    uint8_t& last = pattern[i + static_cast<size_t>(type.bytes) - 1];
    last = static_cast<uint8_t>((last & 0x80) | type.top);
  }
  return pattern;
}

bool write_all(int file, const void* data, size_t bytes, off_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = pwrite(file, from, bytes, offset);
    if (done <= 0) return false;
    from += done;
    bytes -= static_cast<size_t>(done);
    offset += done;
  }
  return true;
}

bool write_tensor(int file, const Tensor& tensor, const Type& type, off_t offset,
                  const std::vector<uint8_t>& pattern) {
  if (tensor.plain()) {
    const std::vector<float> values(static_cast<size_t>(tensor.elements()), tensor.fill);
    return write_all(file, values.data(), values.size() * sizeof(float), offset);
  }
  auto left = static_cast<size_t>(tensor.bytes(type));
  size_t place = std::hash<std::string>{}(tensor.name) % 65521 * static_cast<size_t>(type.bytes);
  for (; left > 0; place = 0) {
    const size_t count = std::min(left, pattern.size() - place);
    if (!write_all(file, pattern.data() + place, count, offset)) return false;
    offset += static_cast<off_t>(count);
    left -= count;
  }
  return true;
}

int write_model(const std::string& path, const Shape& shape, const Type& type,
                const TokenizerReader* tokenizer) {
  const std::vector<Tensor> tensors = tensors_of(shape);
  const std::string header = header_of(shape, type, tensors, tokenizer);
  std::vector<int64_t> offsets;
  auto end = static_cast<int64_t>(header.size());
  for (const Tensor& tensor : tensors) {
    offsets.push_back(end);
    end += aligned(tensor.bytes(type));
  }
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const bool begun =
      file >= 0 && ftruncate(file, end) == 0 && write_all(file, header.data(), header.size(), 0);
  const std::vector<uint8_t> pattern = make_pattern(type), router_pattern = make_pattern(kF32);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{!begun};
  std::vector<std::thread> threads;
  for (unsigned t = 0; begun && t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < tensors.size(); i = next++)
        if (const Tensor& tensor = tensors[i]; !write_tensor(file, tensor, tensor.type_of(type), offsets[i],
                                                             tensor.router ? router_pattern : pattern))
          failed = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (file >= 0) close(file);
  if (!failed) return 0;
  fmt::print(stderr, "{}: cannot be written\n", path);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view wanted = count > 3 ? arguments[3] : kShapes[0].name;
  std::optional<TokenizerReader> tokenizer;
  if (count > 4) {
    std::ifstream file(arguments[4], std::ios::binary);
    tokenizer.emplace(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!tokenizer->read()) {
      fmt::print(stderr, "{}: no GGUF file\n", arguments[4]);
      return 1;
    }
  }
  for (const Shape& shape : kShapes)
    for (const Type& type : kTypes)
      if (count > 2 && shape.name == wanted && type.name == arguments[2])
        return write_model(arguments[1], shape, type, tokenizer ? &*tokenizer : nullptr);
  const auto names = [](const auto& table) {
    std::vector<std::string_view> all;
    for (const auto& entry : table) all.push_back(entry.name);
    return all;
  };
  fmt::print(stderr, "random_gguf FILE {} [{}] [TOKENIZER.gguf]\n", fmt::join(names(kTypes), "|"),
             fmt::join(names(kShapes), " | "));
  return 2;
}
