#include "hybrid_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>

#include "base/json.h"
#include "formats/safetensors/safetensors.h"
#include "tensor/blocks.h"

namespace sluice::runtime::test {

namespace {

constexpr double kHybridEps = 1e-6, kHybridTheta = 10000.0;
const std::string kLayer = "mtp.layers.0", kLike = "model.layers.1";  // the one that attends

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

bool adds_to_stream(const std::string& name) {
  return name.ends_with("o_proj.weight") || name.ends_with("out_proj.weight") ||
         name.ends_with("down_proj.weight");
}

}  // namespace

HybridHead::HybridHead(const HybridHeadOptions& options) : options_(options) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/../../golden/data/" + options.model;
  read(folder);
  add_head();
  for (auto& [name, tensor] : tensors_)
    if (adds_to_stream(name))
      for (float& value : tensor.values) value *= options.layers;
  options.gguf ? write_gguf(folder + "/../gguf/" + options.model + ".gguf") : write(folder);
}

void HybridHead::read(const std::string& folder) {
  const Result<formats::Safetensors> files = formats::open_safetensors(folder);
  SLUICE_CHECK(files.ok());
  for (const std::string& name : files->tensors.names()) {
    const TensorView view = *files->tensors.find(name);
    Tensor& tensor = tensors_[name];
    for (int i = 0; i < view.rank; ++i) tensor.shape.push_back(view.shape[static_cast<size_t>(i)]);
    tensor.values.resize(static_cast<size_t>(view.elements()));
    dequantize_row(view.dtype, view.data, tensor.values.data(), view.elements());
  }
}

// Numbers that look random but are the same everywhere.
void HybridHead::fill(Tensor& tensor, float scale) {
  const auto elements =
      std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  tensor.values.clear();
  for (int64_t i = 0; i < elements; ++i) {
    state_ = state_ * 1664525u + 1013904223u;
    const float even = static_cast<float>(state_ >> 8) / static_cast<float>(1 << 24);
    tensor.values.push_back(scale * (2 * even - 1));
  }
}

// Gains are stored less one.
void HybridHead::add_head() {
  std::map<std::string, Tensor> head;
  for (const auto& [name, tensor] : tensors_) {
    if (!name.starts_with(kLike + ".")) continue;
    Tensor& own = head[kLayer + name.substr(kLike.size())];
    own.shape = tensor.shape;
    fill(own, name.ends_with("norm.weight") ? 0.3f : 0.4f);
  }
  for (const char* name : {"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"}) {
    Tensor& gain = head[std::string(name) + ".weight"];
    gain.shape = {kDim};
    fill(gain, options_.passes_on ? 0 : 0.3f);
  }
  Tensor& fusion = head["mtp.fc.weight"];
  fusion.shape = {kDim, 2 * kDim};
  fill(fusion, options_.passes_on ? 0 : 0.4f);
  for (size_t i = 0; i < kDim && options_.passes_on; ++i) fusion.values[i * 2 * kDim + i] = 1;
  if (options_.passes_on) head["mtp.norm.weight"] = tensors_["model.norm.weight"];
  tensors_.merge(head);
}

void HybridHead::write(const std::string& folder) const {
  json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors_) {
    const size_t begin = data.size(), bytes = tensor.values.size() * sizeof(float);
    data.resize(begin + bytes);
    std::memcpy(data.data() + begin, tensor.values.data(), bytes);
    header[name] = json::object{{"dtype", "F32"},
                                {"shape", json::value_from(tensor.shape)},
                                {"data_offsets", json::array{begin, begin + bytes}}};
  }
  const std::string text = json::serialize(header);
  std::string size(8, '\0');
  for (size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(text.size() >> (8 * i));
  folder_.write("model.safetensors", size + text + data);
  std::ifstream file(folder + "/config.json");
  std::ostringstream config;
  config << file.rdbuf();
  std::string longer = config.str();
  const std::string positions = "\"max_position_embeddings\": 64";
  SLUICE_CHECK(longer.find(positions) != std::string::npos);
  longer.replace(longer.find(positions), positions.size(), "\"max_position_embeddings\": 256");
  folder_.write("config.json", longer);
}

HybridHead::Row HybridHead::product(const std::string& name, const Row& x) const {
  const Tensor& matrix = tensor(name);
  Row out(static_cast<size_t>(matrix.shape[0]));
  for (size_t row = 0; row < out.size(); ++row)
    for (size_t col = 0; col < x.size(); ++col)
      out[row] += double{matrix.values[row * x.size() + col]} * x[col];
  return out;
}

HybridHead::Row HybridHead::normed(const std::string& name, Row x) const {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kHybridEps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * (1 + double{tensor(name).values[i]});
  return x;
}

// The head whose values begin there, normed, with its first values turned by the position, as halves.
HybridHead::Row HybridHead::turned_head(const std::string& norm, const Row& rows, int begin,
                                        int position) const {
  Row head = normed(kLayer + norm, Row(rows.begin() + begin, rows.begin() + begin + kHeadDim));
  constexpr size_t half = kTurned / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(kHybridTheta, -2.0 * static_cast<double>(i) / kTurned);
    const double a = head[i], b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
  return head;
}

// Rows of the query projection hold the query of a head and its gate side by side.
void HybridHead::attend(std::vector<Row>& x) const {
  std::vector<std::vector<Row>> keys;  // [positions][heads]
  std::vector<Row> values;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto position = static_cast<int>(i);
    const Row in = normed(kLayer + ".input_layernorm", x[i]);
    const Row queries = product(kLayer + ".self_attn.q_proj", in),
              made = product(kLayer + ".self_attn.k_proj", in);
    values.push_back(product(kLayer + ".self_attn.v_proj", in));
    keys.emplace_back();
    for (int head = 0; head < kKvHeads; ++head)
      keys.back().push_back(turned_head(".self_attn.k_norm", made, head * kHeadDim, position));
    Row attended;
    for (int head = 0; head < kHeads; ++head) {
      const Row query = turned_head(".self_attn.q_norm", queries, 2 * head * kHeadDim, position);
      const auto of = static_cast<size_t>(head / (kHeads / kKvHeads));
      std::vector<double> weights;
      for (const std::vector<Row>& key : keys)
        weights.push_back(std::exp(std::inner_product(query.begin(), query.end(), key[of].begin(), 0.0) / 4));
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t d = 0; d < kHeadDim; ++d) {
        double sum = 0;
        for (size_t j = 0; j <= i; ++j) sum += weights[j] / total * values[j][of * kHeadDim + d];
        attended.push_back(sum * sigmoid(queries[static_cast<size_t>(2 * head + 1) * kHeadDim + d]));
      }
    }
    const Row out = product(kLayer + ".self_attn.o_proj", attended);
    for (size_t d = 0; d < out.size(); ++d) x[i][d] += out[d];
  }
}

HybridHead::Row HybridHead::swiglu(const std::string& prefix, const Row& x) const {
  Row gate = product(prefix + ".gate_proj", x);
  const Row up = product(prefix + ".up_proj", x);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= sigmoid(gate[i]) * up[i];
  return product(prefix + ".down_proj", gate);
}

// Dense, or the two likeliest experts by their shares and one that all tokens share, behind a gate.
HybridHead::Row HybridHead::fed(const Row& x) const {
  const std::string mlp = kLayer + ".mlp";
  if (!tensors_.contains(mlp + ".gate.weight")) return swiglu(mlp, x);
  Row scores = product(mlp + ".gate", x);
  for (double& score : scores) score = std::exp(score);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  Row out = swiglu(mlp + ".shared_expert", x);
  for (double& value : out) value *= sigmoid(product(mlp + ".shared_expert_gate", x)[0]);
  for (size_t i = 0; i < 2; ++i) {
    const double share = scores[order[i]] / (scores[order[0]] + scores[order[1]]);
    const Row made = swiglu(mlp + ".experts." + std::to_string(order[i]), x);
    for (size_t d = 0; d < out.size(); ++d) out[d] += share * made[d];
  }
  return out;
}

std::vector<HybridHead::Row> HybridHead::head_hidden(const std::vector<Token>& tokens,
                                                     const std::vector<Row>& before) const {
  std::vector<Row> x;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto table = tensor("model.embed_tokens").values.begin() + tokens[i] * kDim;
    Row halves = normed("mtp.pre_fc_norm_embedding", Row(table, table + kDim));
    const Row hidden = normed("mtp.pre_fc_norm_hidden", before[i]);
    halves.insert(halves.end(), hidden.begin(), hidden.end());
    x.push_back(product("mtp.fc", halves));
  }
  attend(x);
  for (Row& row : x) {
    const Row out = fed(normed(kLayer + ".post_attention_layernorm", row));
    for (size_t d = 0; d < out.size(); ++d) row[d] += out[d];
    row = normed("mtp.norm", row);
  }
  return x;
}

}  // namespace sluice::runtime::test
