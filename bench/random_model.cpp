// Writes a model folder of a known shape with random weights, to measure speed with: random_model FOLDER [SHAPE [awq]].
// Weights are bf16; with awq the projections of every layer have 4 bits in AWQ's layout, in groups of 128 columns.
// qwen3-30b-a3b has 12 of 48 layers, v2-lite 9 of 27, with the router of DeepSeek-V3, qwen3.5-35b-a3b 12 of 40, mistral 8 of
// 32, each with a window of 512 positions, mixtral-8x7b 4 of 32, qwen3-235b-a22b 2 of 94. qwen2.5-7b has no biases, and
// stablelm-3b and gemma-2-2b have their widths and heads in Llama's layers: they stand for heads of 80 and 256.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

enum class Kind : uint8_t { Llama, Qwen3, Qwen3Moe, DeepSeekV3, Qwen35, Qwen35Moe, Mistral };

constexpr int64_t kAwqGroup = 128;
constexpr int64_t kWindow = 512;  // of every layer of a Mistral

struct Shape {
  std::string_view name;
  Kind kind;
  int64_t dim, layers, heads, kv_heads, head_dim, inner, vocab;
  int64_t experts = 0, used = 0, expert_inner = 0, shared = 0;    // shared: experts
  int64_t latent = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;  // latent attention
  int64_t delta_key_heads = 0, delta_value_heads = 0;             // of 128, in three of four layers

  bool is_delta(int64_t layer) const { return delta_key_heads > 0 && layer % 4 != 3; }
  int64_t delta_keys() const { return delta_key_heads * 128; }
  int64_t delta_values() const { return delta_value_heads * 128; }
};
constexpr Shape kShapes[] = {
    {"llama-3.1-8b", Kind::Llama, 4096, 32, 32, 8, 128, 14336, 128256},
    {"llama-3.2-1b", Kind::Llama, 2048, 16, 32, 8, 64, 8192, 128256},
    {"llama-0.5b", Kind::Llama, 1024, 24, 8, 4, 128, 2816, 128256},   // drafts for the first
    {"llama-0.8b", Kind::Llama, 1536, 16, 12, 4, 128, 4096, 128256},  // a tenth of the first
    {"phi-3-mini", Kind::Llama, 3072, 32, 32, 32, 96, 8192, 32064},
    {"qwen3-0.6b", Kind::Qwen3, 1024, 28, 16, 8, 128, 3072, 151936},
    {"qwen3-30b-a3b", Kind::Qwen3Moe, 2048, 12, 32, 4, 128, 6144, 151936, 128, 8, 768},
    {"v2-lite", Kind::DeepSeekV3, 2048, 9, 16, 16, 192, 10944, 102400, 64, 6, 1408, 2, 512, 128, 64, 128},
    {"qwen3.5-9b", Kind::Qwen35, 4096, 32, 16, 4, 256, 12288, 248320, 0, 0, 0, 0, 0, 0, 0, 0, 16, 32},
    {"qwen3.5-35b-a3b", Kind::Qwen35Moe, 2048, 12, 16, 2, 256, 0, 248320, 256, 8, 512, 1, 0, 0, 0, 0, 16, 32},
    {"qwen2.5-7b", Kind::Llama, 3584, 28, 28, 4, 128, 18944, 152064},
    {"stablelm-3b", Kind::Llama, 2560, 32, 32, 32, 80, 6912, 50304},
    {"gemma-2-2b", Kind::Llama, 2304, 26, 8, 4, 256, 9216, 256000},
    {"mistral", Kind::Mistral, 4096, 8, 32, 8, 128, 14336, 32000},
    {"mixtral-8x7b", Kind::Qwen3Moe, 4096, 4, 32, 8, 128, 14336, 32000, 8, 2, 14336},
    {"qwen3-235b-a22b", Kind::Qwen3Moe, 4096, 2, 64, 4, 128, 12288, 151936, 128, 8, 1536},
    {"tiny", Kind::Llama, 512, 2, 8, 2, 64, 1024, 1024}};

enum class Values : uint8_t { Normal, Bits, Scales };  // bf16, whole words of 4-bit codes, f16

struct Tensor {
  std::string name;
  int64_t rows, cols;       // cols 0: a vector of ones
  bool has_middle = false;  // written as [rows, 1, cols]
  Values values = Values::Normal;
  int64_t bytes() const { return rows * (cols > 0 ? cols : 1) * (values == Values::Bits ? 4 : 2); }
  std::string_view type() const {
    return values == Values::Bits ? "I32" : values == Values::Scales ? "F16" : "BF16";
  }
  std::string dims() const {
    if (cols == 0) return fmt::format("{}", rows);
    return fmt::format("{},{}{}", rows, has_middle ? "1," : "", cols);
  }
};

// Names and shapes of one layer's tensors.
struct LayerTensors {
  const Shape& s;
  int64_t layer;
  std::vector<Tensor>& out;

  void add(std::string_view name, int64_t rows, int64_t cols, std::string_view suffix = ".weight") const {
    out.push_back({fmt::format("model.layers.{}.{}{}", layer, name, suffix), rows, cols});
  }
  void add_mlp(const std::string& prefix, int64_t inner) const {
    add(prefix + ".gate_proj", inner, s.dim);
    add(prefix + ".up_proj", inner, s.dim);
    add(prefix + ".down_proj", s.dim, inner);
  }
  void add_delta() const {
    const int64_t channels = 2 * s.delta_keys() + s.delta_values();
    add("linear_attn.in_proj_qkv", channels, s.dim);
    add("linear_attn.in_proj_z", s.delta_values(), s.dim);
    add("linear_attn.in_proj_a", s.delta_value_heads, s.dim);
    add("linear_attn.in_proj_b", s.delta_value_heads, s.dim);
    add("linear_attn.conv1d", channels, 4);
    out.back().has_middle = true;
    add("linear_attn.A_log", s.delta_value_heads, 0, "");
    add("linear_attn.dt_bias", s.delta_value_heads, 0, "");
    add("linear_attn.norm", 128, 0);
    add("linear_attn.out_proj", s.dim, s.delta_values());
  }
  void add_attention() const {
    if (s.is_delta(layer)) return add_delta();
    if (s.kind == Kind::DeepSeekV3) {
      add("self_attn.q_proj", s.heads * s.head_dim, s.dim);
      add("self_attn.kv_a_proj_with_mqa", s.latent + s.rope_dim, s.dim);
      add("self_attn.kv_a_layernorm", s.latent, 0);
      add("self_attn.kv_b_proj", s.heads * (s.nope_dim + s.value_dim), s.latent);
      return add("self_attn.o_proj", s.dim, s.heads * s.value_dim);
    }
    const bool gated = s.delta_key_heads > 0;  // queries and gates of a head side by side
    add("self_attn.q_proj", s.heads * s.head_dim * (gated ? 2 : 1), s.dim);
    add("self_attn.k_proj", s.kv_heads * s.head_dim, s.dim);
    add("self_attn.v_proj", s.kv_heads * s.head_dim, s.dim);
    add("self_attn.o_proj", s.dim, s.heads * s.head_dim);
    if (s.kind == Kind::Llama || s.kind == Kind::Mistral) return;
    add("self_attn.q_norm", s.head_dim, 0);
    add("self_attn.k_norm", s.head_dim, 0);
  }
  void add_feed_forward() const {
    const bool dense = s.experts == 0 || (s.kind == Kind::DeepSeekV3 && layer == 0);
    if (dense) return add_mlp("mlp", s.inner);
    add("mlp.gate", s.experts, s.dim);
    if (s.kind == Kind::DeepSeekV3) add("mlp.gate.e_score_correction_bias", s.experts, 0, "");
    for (int64_t e = 0; e < s.experts; ++e) add_mlp(fmt::format("mlp.experts.{}", e), s.expert_inner);
    if (s.kind == Kind::DeepSeekV3) add_mlp("mlp.shared_experts", s.shared * s.expert_inner);
    if (s.kind != Kind::Qwen35Moe) return;
    add_mlp("mlp.shared_expert", s.shared * s.expert_inner);
    add("mlp.shared_expert_gate", 1, s.dim);
  }
};

bool tied(const Shape& s) {
  return s.kind == Kind::Qwen3;
}

std::vector<Tensor> tensors_of(const Shape& s) {
  std::vector<Tensor> out{{"model.embed_tokens.weight", s.vocab, s.dim}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const LayerTensors layer{s, i, out};
    layer.add("input_layernorm", s.dim, 0);
    layer.add_attention();
    layer.add("post_attention_layernorm", s.dim, 0);
    layer.add_feed_forward();
  }
  out.push_back({"model.norm.weight", s.dim, 0});
  if (!tied(s)) out.push_back({"lm_head.weight", s.vocab, s.dim});
  return out;
}

// Projections of layers as AWQ has them: eight codes of a row of [columns, rows] in a word, zeros and scales for each group.
std::vector<Tensor> in_awq(const std::vector<Tensor>& plain) {
  constexpr std::string_view kEnd = "_proj.weight";
  std::vector<Tensor> out;
  for (const Tensor& tensor : plain) {
    const bool packs = tensor.name.ends_with(kEnd) && tensor.rows % 8 == 0 && tensor.cols % kAwqGroup == 0 &&
                       tensor.cols > 0;
    if (!packs) {
      out.push_back(tensor);
      continue;
    }
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - std::string_view("weight").size());
    const int64_t groups = tensor.cols / kAwqGroup;
    out.push_back({prefix + "qweight", tensor.cols, tensor.rows / 8, false, Values::Bits});
    out.push_back({prefix + "qzeros", groups, tensor.rows / 8, false, Values::Bits});
    out.push_back({prefix + "scales", groups, tensor.rows, false, Values::Scales});
  }
  return out;
}

uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A normal distribution's numbers, any bits, or scales in f16 between 0.002 and 0.004, with which codes of 4 bits around a zero
// point spread as the former; a tensor takes them from a place of its own on.
std::vector<uint16_t> make_pattern(Values values) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<uint16_t> pattern((size_t{1} << 23) + 9973);
  for (uint16_t& value : pattern) {
    if (values == Values::Normal) {
      value = bf16(normal(random));
    } else {
      const auto bits = static_cast<uint16_t>(random());
      value = values == Values::Bits ? bits : static_cast<uint16_t>(0x1800 | (bits & 0x3ff));
    }
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

bool write_tensor(int file, const Tensor& tensor, off_t offset, const std::vector<uint16_t>& pattern,
                  size_t place) {
  const std::vector<uint16_t> ones(tensor.cols == 0 ? static_cast<size_t>(tensor.rows) : 0, bf16(1.0f));
  if (tensor.cols == 0) return write_all(file, ones.data(), ones.size() * 2, offset);
  size_t left = static_cast<size_t>(tensor.bytes() / 2);
  while (left > 0) {
    const size_t count = std::min(left, pattern.size() - place);
    if (!write_all(file, pattern.data() + place, count * 2, offset)) return false;
    offset += static_cast<off_t>(count * 2);
    left -= count;
    place = 0;
  }
  return true;
}

std::string config_of(const Shape& s, bool awq) {
  constexpr std::string_view kNames[][2] = {
      {"LlamaForCausalLM", "llama"},          {"Qwen3ForCausalLM", "qwen3"},
      {"Qwen3MoeForCausalLM", "qwen3_moe"},   {"DeepseekV3ForCausalLM", "deepseek_v3"},
      {"Qwen3_5ForCausalLM", "qwen3_5_text"}, {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
      {"MistralForCausalLM", "mistral"}};
  const auto& [architecture, type] = kNames[static_cast<size_t>(s.kind)];
  std::string more;
  if (s.kind == Kind::Qwen3Moe || s.kind == Kind::Qwen35Moe)
    more = fmt::format(
        R"("num_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {}, "norm_topk_prob": true,
"decoder_sparse_step": 1, "mlp_only_layers": [], )",
        s.experts, s.used, s.expert_inner);
  if (s.delta_key_heads > 0)
    more += fmt::format(
        R"("full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
"linear_value_head_dim": 128, "linear_num_key_heads": {}, "linear_num_value_heads": {}, "partial_rotary_factor": 0.25,
"shared_expert_intermediate_size": {}, )",
        s.delta_key_heads, s.delta_value_heads, s.shared * s.expert_inner);
  if (s.kind == Kind::Mistral) more = fmt::format(R"("sliding_window": {}, )", kWindow);
  if (s.kind == Kind::DeepSeekV3)
    more = fmt::format(
        R"("n_routed_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {}, "n_shared_experts": {},
"n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
"moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "q_lora_rank": null, "kv_lora_rank": {},
"qk_nope_head_dim": {}, "qk_rope_head_dim": {}, "v_head_dim": {}, "rope_interleave": true, )",
        s.experts, s.used, s.expert_inner, s.shared, s.latent, s.nope_dim, s.rope_dim, s.value_dim);
  else
    more += fmt::format(R"("head_dim": {}, )", s.head_dim);
  return fmt::format(
      R"({{"architectures": ["{}"], "model_type": "{}", "hidden_size": {}, "num_hidden_layers": {},
"num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {}, "vocab_size": {}, {}
"rms_norm_eps": 1e-05, "rope_theta": 500000.0, "max_position_embeddings": 8192, "hidden_act": "silu",
"attention_bias": false, "tie_word_embeddings": {}, "torch_dtype": "bfloat16"{}}}
)",
      architecture, type, s.dim, s.layers, s.heads, s.kv_heads, s.inner, s.vocab, more, tied(s),
      awq ? fmt::format(R"(, "quantization_config": {{"quant_method": "awq", "bits": 4, "group_size": {},
"zero_point": true, "version": "gemm"}})",
                        kAwqGroup)
          : "");
}

// Every byte is a token of its own, any other token a word that says its number.
std::string tokenizer_of(const Shape& s) {
  std::string vocabulary;
  for (int64_t id = 0; id < s.vocab; ++id) {
    // The printable stand-ins that byte-level tokenizers use: bytes that print stand for themselves.
    const bool prints = (id >= 33 && id <= 126) || (id >= 161 && id <= 172) || (id >= 174 && id <= 255);
    const int64_t code = id < 33 ? 256 + id : id < 161 ? 256 + 33 + id - 127 : 256 + 33 + 34;
    vocabulary += id > 0 ? "," : "";
    if (id < 256) {
      vocabulary += fmt::format("\"\\u{:04x}\":{}", prints ? id : code, id);
    } else {
      vocabulary += fmt::format("\"w{}\":{}", id, id);
    }
  }
  return R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",)"
         R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,)"
         R"("decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
         R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
         R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)" +
         vocabulary + R"(},"merges":[]}})";
}

int write_model(const std::string& folder, const Shape& shape, bool awq) {
  mkdir(folder.c_str(), 0755);
  std::ofstream(folder + "/config.json") << config_of(shape, awq);
  std::ofstream(folder + "/tokenizer.json") << tokenizer_of(shape);
  const std::vector<Tensor> tensors = awq ? in_awq(tensors_of(shape)) : tensors_of(shape);
  std::string header = "{";
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    offsets.push_back(end);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", end > 0 ? "," : "",
                    tensor.name, tensor.type(), tensor.dims(), end, end + tensor.bytes());
    end += tensor.bytes();
  }
  header += "}";
  header.resize((header.size() + 255) / 256 * 256 - 8 + 256, ' ');
  const auto length = static_cast<uint64_t>(header.size());
  const auto base = static_cast<off_t>(8 + header.size());
  const int file = open((folder + "/model.safetensors").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  bool written = file >= 0 && ftruncate(file, base + end) == 0 && write_all(file, &length, 8, 0) &&
                 write_all(file, header.data(), header.size(), 8);
  std::vector<uint16_t> patterns[3];  // by Values
  for (const Values values : {Values::Normal, Values::Bits, Values::Scales})
    if (awq || values == Values::Normal) patterns[static_cast<size_t>(values)] = make_pattern(values);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; written && t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < tensors.size(); i = next++) {
        const std::vector<uint16_t>& pattern = patterns[static_cast<size_t>(tensors[i].values)];
        const size_t place = i * 1000003 % pattern.size();
        if (!write_tensor(file, tensors[i], base + offsets[i], pattern, place)) failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (file >= 0) close(file);
  if (written && !failed) return 0;
  fmt::print(stderr, "{}: cannot be written\n", folder);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view wanted = count > 2 ? arguments[2] : kShapes[0].name;
  const bool awq = count > 3 && arguments[3] == std::string_view("awq");
  for (const Shape& shape : kShapes)
    if (count > 1 && arguments[1][0] != '-' && shape.name == wanted && count <= (awq ? 4 : 3))
      return write_model(arguments[1], shape, awq);
  fmt::print(stderr, "random_model FOLDER [SHAPE [awq]]; shapes:");
  for (const Shape& shape : kShapes) fmt::print(stderr, " {}", shape.name);
  fmt::print(stderr, "\n");
  return 2;
}
