// The head of a HybridHead behind the tensors of a GGUF file.
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "formats/gguf/gguf.h"
#include "hybrid_head.h"
#include "tensor/blocks.h"
#include "tests/formats/gguf_writer.h"

namespace sluice::runtime::test {

namespace {

struct GgufName {
  std::string_view part, name;
};
constexpr std::array<GgufName, 15> kGgufNames{{
    {"mtp.fc", "nextn.eh_proj"},
    {"mtp.pre_fc_norm_embedding", "nextn.enorm"},
    {"mtp.pre_fc_norm_hidden", "nextn.hnorm"},
    {"mtp.norm", "nextn.shared_head_norm"},
    {"mtp.layers.0.input_layernorm", "attn_norm"},
    {"mtp.layers.0.post_attention_layernorm", "post_attention_norm"},
    {"mtp.layers.0.self_attn.q_proj", "attn_q"},
    {"mtp.layers.0.self_attn.k_proj", "attn_k"},
    {"mtp.layers.0.self_attn.v_proj", "attn_v"},
    {"mtp.layers.0.self_attn.o_proj", "attn_output"},
    {"mtp.layers.0.self_attn.q_norm", "attn_q_norm"},
    {"mtp.layers.0.self_attn.k_norm", "attn_k_norm"},
    {"mtp.layers.0.mlp.gate_proj", "ffn_gate"},
    {"mtp.layers.0.mlp.up_proj", "ffn_up"},
    {"mtp.layers.0.mlp.down_proj", "ffn_down"},
}};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// What the file says of itself, cut at the places where something is added.
struct Cut {
  std::string pairs, descriptions, data;
  uint64_t tensors = 0, pair_count = 0;
};

Cut cut(const std::string& bytes, std::string_view first_tensor) {
  Cut out{.tensors = number_at<uint64_t>(bytes, 8), .pair_count = number_at<uint64_t>(bytes, 16)};
  const size_t begin = bytes.find(formats::raw_string(first_tensor));
  SLUICE_CHECK(begin != std::string::npos);
  size_t at = begin;
  for (uint64_t i = 0; i < out.tensors; ++i) {
    at += 8 + number_at<uint64_t>(bytes, at);
    at += 4 + 8 * size_t{number_at<uint32_t>(bytes, at)} + 4 + 8;
  }
  out.pairs = bytes.substr(24, begin - 24);
  out.descriptions = bytes.substr(begin, at - begin);
  out.data = bytes.substr((at + 31) / 32 * 32);
  return out;
}

}  // namespace

// The converter counts the head as a layer and stores gains as they multiply.
void HybridHead::write_gguf(const std::string& original) {
  const Result<formats::Gguf> model = formats::open_gguf(original);
  SLUICE_CHECK(model.ok());
  for (const auto& [ours, theirs] : {std::pair("model.embed_tokens.weight", "token_embd.weight"),
                                     std::pair("lm_head.weight", "output.weight")}) {
    const TensorView view = *model->tensors.find(theirs);
    dequantize_row(view.dtype, view.data, tensors_.at(ours).values.data(), view.elements());
  }
  Cut file = cut(bytes_of(original), "output.weight");
  const std::string count = formats::raw_string("qwen35.block_count") + formats::raw(uint32_t{4});
  const size_t at = file.pairs.find(count);
  SLUICE_CHECK(at != std::string::npos);
  file.pairs.replace(at + count.size(), 4, formats::raw(uint32_t{4}));
  file.pairs += formats::raw_string("qwen35.nextn_predict_layers") + formats::raw(uint32_t{4}) +
                formats::raw(uint32_t{1});
  for (const auto& [part, name] : kGgufNames) {
    const Tensor& tensor = tensors_.at(std::string(part) + ".weight");
    file.data.resize((file.data.size() + 31) / 32 * 32, '\0');
    file.descriptions += formats::raw_string("blk.3." + std::string(name) + ".weight") +
                         formats::raw(static_cast<uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
      file.descriptions += formats::raw(*extent);
    file.descriptions +=
        formats::raw(uint32_t{formats::ggml_type::F32}) + formats::raw(uint64_t{file.data.size()});
    for (const float value : tensor.values)
      file.data += formats::raw(tensor.shape.size() == 1 ? value + 1 : value);
  }
  std::string out = "GGUF" + formats::raw(uint32_t{3}) + formats::raw(file.tensors + kGgufNames.size()) +
                    formats::raw(file.pair_count + 1) + file.pairs + file.descriptions;
  out.resize((out.size() + 31) / 32 * 32, '\0');
  folder_.write("model.gguf", out + file.data);
}

}  // namespace sluice::runtime::test
