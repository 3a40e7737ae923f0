// Folders of a small mixture whose experts are stored in types of their own, beside the same weights as plain floats.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/formats/files.h"

namespace sluice {

// A file of tensors that grows.
class TensorsFile {
 public:
  template <class T>
  void add(const std::string& name, const char* type, const std::vector<int64_t>& shape,
           const std::vector<T>& values) {
    json::array sides;
    for (const int64_t side : shape) sides.push_back(side);
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_[name] =
        json::object{{"dtype", type}, {"shape", sides}, {"data_offsets", json::array{begin, data_.size()}}};
  }
  std::string bytes() const {
    std::string text = json::serialize(header_);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), 8) + text + data_;
  }

 private:
  json::object header_;
  std::string data_;
};

// How a matrix is stored: in integers of so many bits with a scale for each 32 columns, whose groups may lie in any order; or, of
// 0 bits, as it is.
struct StoredAs {
  int bits = 0;
  uint32_t order = 0;  // that of its groups, by number; 0: one behind the other
};

struct ExpertKind {
  StoredAs gate, up, down;
};

class MixtureFolders {
 public:
  static constexpr int64_t kDim = 128, kInner = 160, kGroup = 32;
  static constexpr int kVocab = 32, kHeads = 4;

  explicit MixtureFolders(const std::vector<ExpertKind>& experts) {
    module("model.embed_tokens", kVocab, kDim, {}, 1.0f);
    module("lm_head", kVocab, kDim, {}, 0.09f);
    norm("model.norm");
    const std::string layer = "model.layers.0.";
    norm(layer + "input_layernorm");
    norm(layer + "post_attention_layernorm");
    for (const char* name : {"q", "k", "v", "o"})
      module(fmt::format("{}self_attn.{}_proj", layer, name), kDim, kDim, {}, 0.06f);
    const std::string mixture = layer + "block_sparse_moe.";
    module(mixture + "gate", static_cast<int64_t>(experts.size()), kDim, {}, 0.3f);
    for (size_t e = 0; e < experts.size(); ++e) {
      const std::string stem = fmt::format("{}experts.{}.", mixture, e);
      module(stem + "w1", kInner, kDim, experts[e].gate, 0.06f);
      module(stem + "w3", kInner, kDim, experts[e].up, 0.06f);
      module(stem + "w2", kDim, kInner, experts[e].down, 0.06f);
    }
    write(stored_, stored_tensors_, quantized(), static_cast<int>(experts.size()));
    write(plain_, plain_tensors_, nullptr, static_cast<int>(experts.size()));
  }
  std::string stored() const { return stored_.path().string(); }
  std::string plain() const { return plain_.path().string(); }

 private:
  void norm(const std::string& name) {
    std::vector<float> gain(kDim);
    for (float& value : gain) value = 1.0f + 0.1f * normal_(random_);
    stored_tensors_.add(name + ".weight", "F32", {kDim}, gain);
    plain_tensors_.add(name + ".weight", "F32", {kDim}, gain);
  }
  void module(const std::string& stem, int64_t rows, int64_t cols, const StoredAs& as, float size) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    if (as.bits == 0) {
      std::vector<uint16_t> halves;  // of bf16
      for (float& value : values) {
        const float exact = size * normal_(random_);
        uint32_t bits = 0;
        std::memcpy(&bits, &exact, 4);
        bits &= 0xffff0000u;
        std::memcpy(&value, &bits, 4);
        halves.push_back(static_cast<uint16_t>(bits >> 16));
      }
      stored_tensors_.add(stem + ".weight", "BF16", {rows, cols}, halves);
      ignored_.push_back(json::string(stem));
    } else {
      integers(stem, rows, cols, as, values);
    }
    plain_tensors_.add(stem + ".weight", "F32", {rows, cols}, values);
  }
  void integers(const std::string& stem, int64_t rows, int64_t cols, const StoredAs& as,
                std::vector<float>& values) {
    const int64_t groups = cols / kGroup, fields = 32 / as.bits;
    std::vector<int32_t> group_of(static_cast<size_t>(cols));
    for (int64_t k = 0; k < cols; ++k) group_of[static_cast<size_t>(k)] = static_cast<int32_t>(k / kGroup);
    std::mt19937 order(as.order);
    if (as.order != 0) std::shuffle(group_of.begin(), group_of.end(), order);
    std::vector<uint32_t> words(static_cast<size_t>(rows * cols / fields));
    std::vector<float> scales(static_cast<size_t>(rows * groups));
    const int middle = 1 << (as.bits - 1);
    for (float& scale : scales)  // f16 holds it
      scale = static_cast<float>(8 + random_() % 8) / static_cast<float>(middle) / 128.0f;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < cols; ++k) {
        const auto code = static_cast<uint32_t>(random_() % static_cast<uint32_t>(2 * middle));
        const auto at = static_cast<size_t>(r * cols + k);
        words[at / static_cast<size_t>(fields)] |=
            code << (static_cast<size_t>(as.bits) * (at % static_cast<size_t>(fields)));
        values[at] = scales[static_cast<size_t>(r * groups + group_of[static_cast<size_t>(k)])] *
                     static_cast<float>(static_cast<int>(code) - middle);
      }
    stored_tensors_.add(stem + ".weight_packed", "I32", {rows, cols / fields}, words);
    stored_tensors_.add(stem + ".weight_scale", "F32", {rows, groups}, scales);
    stored_tensors_.add(stem + ".weight_shape", "I64", {2}, std::vector<int64_t>{rows, cols});
    if (as.order != 0) stored_tensors_.add(stem + ".weight_g_idx", "I32", {cols}, group_of);
    (as.bits == 4 ? four_ : eight_).push_back(json::string(stem));
  }
  json::value quantized() const {
    json::object groups;
    const auto add = [&](const char* name, int bits, const json::array& modules) {
      if (modules.empty()) return;
      groups[name] = json::object{{"targets", modules},
                                  {"weights", json::object{{"num_bits", bits},
                                                           {"group_size", kGroup},
                                                           {"symmetric", true},
                                                           {"strategy", "group"},
                                                           {"type", "int"}}}};
    };
    add("group_0", 4, four_);
    add("group_1", 8, eight_);
    return json::object{{"quant_method", "compressed-tensors"},
                        {"format", "pack-quantized"},
                        {"config_groups", groups},
                        {"ignore", ignored_}};
  }
  void write(const formats::TempFolder& folder, const TensorsFile& tensors, json::value quantization,
             int experts) {
    json::object config{{"architectures", json::array{"MixtralForCausalLM"}},
                        {"model_type", "mixtral"},
                        {"hidden_size", kDim},
                        {"intermediate_size", kInner},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", kHeads},
                        {"num_key_value_heads", kHeads},
                        {"num_local_experts", experts},
                        {"num_experts_per_tok", 2},
                        {"vocab_size", kVocab},
                        {"max_position_embeddings", 64},
                        {"rms_norm_eps", 1e-6},
                        {"rope_theta", 1e4},
                        {"hidden_act", "silu"},
                        {"tie_word_embeddings", false}};
    if (!quantization.is_null()) config["quantization_config"] = std::move(quantization);
    folder.write("config.json", json::serialize(config));
    folder.write("model.safetensors", tensors.bytes());
  }

  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  TensorsFile stored_tensors_, plain_tensors_;
  json::array four_, eight_, ignored_;
  formats::TempFolder stored_, plain_;
};

}  // namespace sluice
