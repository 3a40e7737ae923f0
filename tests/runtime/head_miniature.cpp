#include "head_miniature.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/json.h"

namespace sluice::runtime::test {

namespace {

constexpr float kEps = 1e-5f;
constexpr double kTheta = 10000.0;

// Halves of a head, turned by the position.
void rotate(float* head, int position) {
  constexpr int half = HeadMiniature::kHeadDim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = position * std::pow(kTheta, -2.0 * i / HeadMiniature::kHeadDim);
    const double a = head[i], b = head[i + half];
    head[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    head[i + half] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
  }
}

}  // namespace

HeadMiniature::HeadMiniature(const MiniatureOptions& options) : options_(options) {
  add("model.embed_tokens.weight", {kVocab, kDim}, 1);
  for (int layer = 0; layer < kLayers; ++layer)
    add_layer("model.layers." + std::to_string(layer), options.layers);
  add("model.norm.weight", {kDim}, 0.1f, 1);
  add("lm_head.weight", {kVocab, kDim}, 1);
  if (options.passes_on)
    for (int token = 0; token < kVocab; ++token)
      tensors_["model.embed_tokens.weight"].values[static_cast<size_t>(token * kDim)] = 4;
  add_head();
  add_eagle();
  write();
}

// Numbers that look random but are the same everywhere, about `mean`, `scale` wide.
void HeadMiniature::add(const std::string& name, std::vector<int> shape, float scale, float mean) {
  Tensor& tensor = tensors_[name];
  tensor.shape = std::move(shape);
  const int size = std::accumulate(tensor.shape.begin(), tensor.shape.end(), 1, std::multiplies<>());
  for (int i = 0; i < size; ++i) {
    state_ = state_ * 1664525u + 1013904223u;
    const float even = static_cast<float>(state_ >> 8) / static_cast<float>(1 << 24);
    tensor.values.push_back(mean + scale * (2 * even - 1));
  }
}

void HeadMiniature::add_layer(const std::string& prefix, float scale, int input, int kv_heads) {
  constexpr int q = kHeads * kHeadDim;
  const int kv = kv_heads * kHeadDim;
  add(prefix + ".input_layernorm.weight", {kDim}, 0.1f, 1);
  add(prefix + ".post_attention_layernorm.weight", {kDim}, 0.1f, 1);
  add(prefix + ".self_attn.q_proj.weight", {q, input}, 0.6f);
  add(prefix + ".self_attn.k_proj.weight", {kv, input}, 0.6f);
  add(prefix + ".self_attn.v_proj.weight", {kv, input}, 0.6f);
  add(prefix + ".self_attn.o_proj.weight", {kDim, q}, 0.6f * scale);
  add(prefix + ".mlp.gate_proj.weight", {kInner, kDim}, 0.6f);
  add(prefix + ".mlp.up_proj.weight", {kInner, kDim}, 0.6f);
  add(prefix + ".mlp.down_proj.weight", {kDim, kInner}, 0.6f * scale);
}

std::string HeadMiniature::head_name(const std::string& part) const {
  static const std::map<std::string, std::array<const char*, 3>> names{
      {"fusion", {"model.layers.3.eh_proj", "model.mtp_layers.0.input_proj", "mtp.fc"}},
      {"tokens", {"model.layers.3.enorm", "model.mtp_layers.0.token_layernorm", "mtp.pre_fc_norm_embedding"}},
      {"hidden", {"model.layers.3.hnorm", "model.mtp_layers.0.hidden_layernorm", "mtp.pre_fc_norm_hidden"}},
      {"norm", {"model.layers.3.shared_head.norm", "model.mtp_layers.0.final_layernorm", "mtp.norm"}},
      {"layer", {"model.layers.3", "model.mtp_layers.0", "mtp.layers.0"}}};
  return names.at(part)[static_cast<size_t>(options_.names)];
}

void HeadMiniature::add_head() {
  const float mean = options_.names == HeadNames::Qwen ? 0.0f : 1.0f;  // Qwen's gains are stored less one
  for (const char* part : {"tokens", "hidden", "norm"})
    add(head_name(part) + ".weight", {kDim}, options_.passes_on ? 0 : 0.1f, mean);
  add_layer(head_name("layer"), options_.layers);
  add(head_name("fusion") + ".weight", {kDim, 2 * kDim}, options_.passes_on ? 0 : 0.5f);
  Tensor& fusion = tensors_[head_name("fusion") + ".weight"];
  const int first = options_.names == HeadNames::MiMo ? kDim : 0;
  for (int i = 0; i < kDim && options_.passes_on; ++i)
    fusion.values[static_cast<size_t>(i * 2 * kDim + first + i)] = 1;
  if (options_.passes_on)
    tensors_[head_name("norm") + ".weight"].values = tensors_["model.norm.weight"].values;
  if (options_.passes_on && options_.names == HeadNames::Qwen)
    for (float& gain : tensors_[head_name("norm") + ".weight"].values) gain -= 1;
  if (options_.names != HeadNames::DeepSeek) return;
  tensors_["model.layers.3.embed_tokens.weight"] = tensors_["model.embed_tokens.weight"];
  tensors_["model.layers.3.shared_head.head.weight"] = tensors_["lm_head.weight"];
}

void HeadMiniature::add_eagle() {
  add("eagle/fc.weight", {kDim, kLayers * kDim}, options_.passes_on ? 0 : 0.5f);
  add("eagle/midlayer.hidden_norm.weight", {kDim}, 0.1f, 1);
  add_layer("eagle/midlayer", options_.layers, 2 * kDim, kHeads);
  add("eagle/norm.weight", {kDim}, 0.1f, 1);
  Tensor& output = tensors_["eagle/lm_head.weight"];
  const std::vector<float>& rows = tensors_["lm_head.weight"].values;
  output.shape = {kDraftVocab, kDim};
  for (int i = 0; i < kDraftVocab; ++i)
    output.values.insert(output.values.end(), rows.begin() + target_token(i) * kDim,
                         rows.begin() + (target_token(i) + 1) * kDim);
  if (options_.passes_on) pass_on_in_eagle();
}

// Queries and keys are a constant that is most like itself without a distance; values are the token's embedding, normed.
void HeadMiniature::pass_on_in_eagle() {
  const auto tensor = [&](const std::string& part) -> std::vector<float>& {
    return tensors_["eagle/" + part + ".weight"].values;
  };
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    std::vector<float>& matrix = tensor(std::string("midlayer.self_attn.") + part);
    std::fill(matrix.begin(), matrix.end(), 0.0f);
    const bool constant = part[0] == 'q' || part[0] == 'k';
    const int input = part[0] == 'o' ? kDim : 2 * kDim;
    for (int row = 0; row < kDim; ++row) {
      if (!constant) matrix[static_cast<size_t>(row * input + row)] = 1;
      if (constant && row % kHeadDim == 0) matrix[static_cast<size_t>(row * input)] = 8;
    }
  }
  std::vector<float>& gain = tensor("midlayer.input_layernorm");
  std::fill(gain.begin(), gain.end(), 1.0f);
  tensor("norm") = tensors_["model.norm.weight"].values;
}

void HeadMiniature::write_tensors(const formats::TempFolder& folder, const std::string& prefix) const {
  json::object header;
  std::string data;
  if (!prefix.empty()) {
    data.resize(kDraftVocab * sizeof(int64_t));
    for (int i = 0; i < kDraftVocab; ++i) {
      const int64_t distance = target_token(i) - i;
      std::memcpy(data.data() + static_cast<size_t>(i) * sizeof distance, &distance, sizeof distance);
    }
    header["d2t"] = json::object{
        {"dtype", "I64"}, {"shape", json::array{kDraftVocab}}, {"data_offsets", json::array{0, data.size()}}};
  }
  for (const auto& [full, tensor] : tensors_) {
    if (full.starts_with("eagle/") == prefix.empty()) continue;
    const std::string name = full.substr(prefix.size());
    const size_t begin = data.size(), bytes = tensor.values.size() * sizeof(float);
    data.resize(begin + bytes);
    std::memcpy(data.data() + begin, tensor.values.data(), bytes);
    header[name] = json::object{{"dtype", "F32"},
                                {"shape", json::value_from(tensor.shape)},
                                {"data_offsets", json::array{begin, begin + bytes}}};
  }
  const std::string text = json::serialize(header);
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i));
  folder.write("model.safetensors", bytes + text + data);
}

void HeadMiniature::write() const {
  write_tensors(folder_, "");
  write_tensors(eagle_folder_, "eagle/");
  json::object config{{"architectures", json::array{"LlamaForCausalLM"}},
                      {"hidden_size", kDim},
                      {"intermediate_size", kInner},
                      {"num_attention_heads", kHeads},
                      {"num_key_value_heads", kKvHeads},
                      {"head_dim", kHeadDim},
                      {"num_hidden_layers", kLayers},
                      {"max_position_embeddings", 256},
                      {"rms_norm_eps", kEps},
                      {"rope_theta", kTheta},
                      {"tie_word_embeddings", false},
                      {"vocab_size", kVocab}};
  folder_.write("config.json", json::serialize(config));
  config["architectures"] = json::array{"LlamaForCausalLMEagle3"};
  config["num_hidden_layers"] = 1;
  config["num_key_value_heads"] = kHeads;
  config["draft_vocab_size"] = kDraftVocab;
  config["eagle_config"] = json::object{{"eagle_aux_hidden_state_layer_ids", json::array{0, 1, 2}}};
  eagle_folder_.write("config.json", json::serialize(config));
}

Row HeadMiniature::embedding(Token token) const {
  const std::vector<float>& table = tensors_.at("model.embed_tokens.weight").values;
  return {table.begin() + token * kDim, table.begin() + (token + 1) * kDim};
}

Row HeadMiniature::product(const std::string& name, const Row& x) const {
  const Tensor& matrix = tensors_.at(name + ".weight");
  Row out;
  for (int row = 0; row < matrix.shape[0]; ++row) {
    double sum = 0;
    for (size_t col = 0; col < x.size(); ++col)
      sum += double{matrix.values[static_cast<size_t>(row) * x.size() + col]} * x[col];
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

Row HeadMiniature::normed(const std::string& name, const Row& x, float plus) const {
  const std::vector<float>& gain = tensors_.at(name + ".weight").values;
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  Row out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(static_cast<float>(x[i] * factor * (gain[i] + plus)));
  return out;
}

void HeadMiniature::attend(const std::string& prefix, const std::vector<Row>& rows,
                           std::vector<Row>& x) const {
  std::vector<Row> keys, values;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto position = static_cast<int>(i);
    Row query = product(prefix + ".self_attn.q_proj", rows[i]);
    keys.push_back(product(prefix + ".self_attn.k_proj", rows[i]));
    values.push_back(product(prefix + ".self_attn.v_proj", rows[i]));
    for (int head = 0; head < kHeads; ++head) rotate(query.data() + head * kHeadDim, position);
    const int kv_heads = static_cast<int>(keys.back().size()) / kHeadDim;
    for (int head = 0; head < kv_heads; ++head) rotate(keys.back().data() + head * kHeadDim, position);
    Row attended(static_cast<size_t>(kHeads * kHeadDim));
    for (int head = 0; head < kHeads; ++head) {
      const int from = head / (kHeads / kv_heads) * kHeadDim;
      const float* q = query.data() + head * kHeadDim;
      std::vector<double> weights;
      double total = 0;
      for (const Row& key : keys) {
        const double score = std::inner_product(q, q + kHeadDim, key.data() + from, 0.0);
        weights.push_back(score / std::sqrt(double{kHeadDim}));
      }
      const double most = *std::max_element(weights.begin(), weights.end());
      for (double& weight : weights) total += weight = std::exp(weight - most);
      for (size_t j = 0; j < values.size(); ++j)
        for (int d = 0; d < kHeadDim; ++d)
          attended[static_cast<size_t>(head * kHeadDim + d)] +=
              static_cast<float>(weights[j] / total * values[j][static_cast<size_t>(from + d)]);
    }
    const Row out = product(prefix + ".self_attn.o_proj", attended);
    for (size_t d = 0; d < out.size(); ++d) x[i][d] += out[d];
  }
}

void HeadMiniature::run_layer(const std::string& prefix, std::vector<Row>& x) const {
  std::vector<Row> rows;
  for (const Row& row : x) rows.push_back(normed(prefix + ".input_layernorm", row));
  attend(prefix, rows, x);
  feed(prefix, x);
}

void HeadMiniature::feed(const std::string& prefix, std::vector<Row>& x) const {
  for (Row& row : x) {
    const Row in = normed(prefix + ".post_attention_layernorm", row);
    Row gate = product(prefix + ".mlp.gate_proj", in);
    const Row up = product(prefix + ".mlp.up_proj", in);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    const Row out = product(prefix + ".mlp.down_proj", gate);
    for (size_t i = 0; i < out.size(); ++i) row[i] += out[i];
  }
}

std::vector<Row> HeadMiniature::hidden(const std::vector<Token>& tokens) const {
  std::vector<Row> x;
  for (const Token token : tokens) x.push_back(embedding(token));
  for (int layer = 0; layer < kLayers; ++layer) run_layer("model.layers." + std::to_string(layer), x);
  for (Row& row : x) row = normed("model.norm", row);
  return x;
}

std::vector<Row> HeadMiniature::head_hidden(const std::vector<Token>& tokens,
                                            const std::vector<Row>& before) const {
  const float plus = options_.names == HeadNames::Qwen ? 1.0f : 0.0f;
  std::vector<Row> x;
  for (size_t i = 0; i < tokens.size(); ++i) {
    Row first = normed(head_name("tokens"), embedding(tokens[i]), plus);
    Row second = normed(head_name("hidden"), before[i], plus);
    if (options_.names == HeadNames::MiMo) std::swap(first, second);
    first.insert(first.end(), second.begin(), second.end());
    x.push_back(product(head_name("fusion"), first));
  }
  run_layer(head_name("layer"), x);
  for (Row& row : x) row = normed(head_name("norm"), row, plus);
  return x;
}

std::vector<Row> HeadMiniature::tapped(const std::vector<Token>& tokens) const {
  std::vector<Row> x, taps(tokens.size());
  for (const Token token : tokens) x.push_back(embedding(token));
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < x.size(); ++i) taps[i].insert(taps[i].end(), x[i].begin(), x[i].end());
    run_layer("model.layers." + std::to_string(layer), x);
  }
  return taps;
}

std::vector<Row> HeadMiniature::eagle_stream(const std::vector<Token>& tokens, std::vector<Row> g) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back(normed("eagle/midlayer.input_layernorm", embedding(tokens[i])));
    const Row second = normed("eagle/midlayer.hidden_norm", g[i]);
    rows.back().insert(rows.back().end(), second.begin(), second.end());
  }
  attend("eagle/midlayer", rows, g);
  feed("eagle/midlayer", g);
  return g;
}

Row HeadMiniature::logits(const Row& hidden) const {
  return product("lm_head", hidden);
}

}  // namespace sluice::runtime::test
