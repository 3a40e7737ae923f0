// Configs for the tests of models: a small valid one, with keys changed or taken away.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "formats/gguf/gguf.h"
#include "models/family.h"
#include "models/loading/config/config.h"

namespace sluice::models {

inline json::object small_config(std::string_view architecture = "LlamaForCausalLM") {
  return {{"architectures", json::array{json::string(architecture)}},
          {"hidden_size", 64},
          {"vocab_size", 320},
          {"intermediate_size", 96},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-6}};
}

inline json::object with(json::object object,
                         std::initializer_list<std::pair<std::string_view, json::value>> keys) {
  for (const auto& [key, value] : keys) object[json::string_view(key.data(), key.size())] = value;
  return object;
}

inline Result<ModelSpec> spec_of(json::object object) {
  Result<Config> config = Config::from_json(std::move(object), "config.json");
  if (!config) return config.error();
  return build_spec(*config);
}

inline Result<ModelSpec> spec_of(const formats::GgufMetadata& metadata) {
  Result<Config> config = Config::from_gguf(metadata, "model.gguf");
  if (!config) return config.error();
  return build_spec(*config);
}

// `architecture` must outlive the result.
inline formats::GgufMetadata small_metadata(std::string_view architecture) {
  formats::GgufMetadata metadata;
  const auto set = [&](const std::string& key, formats::GgufValue value) {
    metadata.set(std::string(architecture) + "." + key, std::move(value));
  };
  metadata.set("general.architecture", architecture);
  set("embedding_length", int64_t{64});
  set("vocab_size", int64_t{320});
  set("feed_forward_length", int64_t{96});
  set("block_count", int64_t{4});
  set("attention.head_count", int64_t{4});
  set("attention.head_count_kv", int64_t{2});
  set("context_length", int64_t{256});
  set("attention.layer_norm_rms_epsilon", 1e-6);
  return metadata;
}

template <class T>
std::string problem(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

}  // namespace sluice::models
