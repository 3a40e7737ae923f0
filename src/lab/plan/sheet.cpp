#include "lab/plan/sheet.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

namespace sluice::lab {

namespace {

double stored_size(DType type) {
  return double(info(type).block_bytes) / info(type).block_elements;
}

class SheetBuilder {
 public:
  explicit SheetBuilder(ModelSheet& sheet) : sheet_(sheet), dim_(sheet.spec.dim) {}

  void add(const models::LayerSpec& layer) {
    std::visit([&](const auto& mixer) { add_mixer(mixer); }, layer.mixer);
    std::visit([&](const auto& ffn) { add_ffn(ffn); }, layer.ffn);
    sheet_.elementwise += 6 * dim_;
    sheet_.operations += 2;
  }

 private:
  void matrix(std::string_view name, double elements, int calls = 1) {
    if (elements <= 0) return;
    MatrixGroup& group = group_named(name);
    group.elements += elements;
    group.calls += calls;
  }
  void linear(std::string_view name, double outputs, double inputs) {
    if (outputs <= 0) return;
    matrix(name, outputs * inputs);
    std::vector<MatrixShape>& shapes = group_named(name).shapes;
    const MatrixShape shape{static_cast<int64_t>(outputs), static_cast<int64_t>(inputs), 1};
    const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const MatrixShape& other) {
      return other.outputs == shape.outputs && other.inputs == shape.inputs;
    });
    if (found == shapes.end()) {
      shapes.push_back(shape);
    } else {
      ++found->calls;
    }
  }
  MatrixGroup& group_named(std::string_view name) {
    const auto found = std::find_if(sheet_.matrices.begin(), sheet_.matrices.end(),
                                    [&](const MatrixGroup& group) { return group.name == name; });
    if (found != sheet_.matrices.end()) return *found;
    sheet_.matrices.push_back({.name = std::string(name)});
    return sheet_.matrices.back();
  }

  void add_mixer(const models::Attention& m) {
    const double q = double(m.heads) * m.head_dim;
    const double kv = m.kv_from >= 0 ? 0 : double(m.kv_heads) * m.head_dim;
    const double read = m.input_dim > 0 ? m.input_dim : dim_, made = q + (m.values_are_keys ? kv : 2 * kv);
    linear("qkv", made, read);
    if (m.adapter_rank > 0) matrix("adapters", m.adapter_rank * (3 * read + made), 4);
    if (m.gated) linear("attention gate", q, dim_);
    linear("attention output", dim_, q);
    sheet_.elementwise += 2 * (q + 2 * kv);
    sheet_.operations += 3;
    if (m.indexer.heads == 0) return;
    const double index = double(m.indexer.heads + 1) * m.indexer.dim;
    matrix("indexer projections", dim_ * index, 2);
    sheet_.elementwise += 3 * index;
    sheet_.operations += 5;
  }
  void add_mixer(const models::LatentAttention& m) {
    const double q = double(m.heads) * (m.nope_dim + m.rope_dim);
    if (m.q_latent > 0) {
      matrix("query down", dim_ * m.q_latent);
      matrix("query up", m.q_latent * q);
    } else {
      matrix("query", dim_ * q);
    }
    matrix("latent down", dim_ * (m.latent + m.rope_dim));
    matrix("latent up", double(m.latent) * m.heads * (m.nope_dim + m.value_dim), 2);
    matrix("attention output", double(m.heads) * m.value_dim * dim_);
    sheet_.elementwise += 2 * q;
    sheet_.operations += 5;
    if (m.indexer.heads == 0) return;
    const double index_queries = double(m.indexer.heads) * m.indexer.dim;
    matrix("indexer projections", m.q_latent * index_queries + dim_ * (m.indexer.dim + m.indexer.heads), 3);
    sheet_.elementwise += 2 * index_queries;
    sheet_.operations += 4;
  }

  void add_mixer(const models::ShortConv& m) {
    matrix("mixer input", 3 * dim_ * dim_);
    matrix("mixer output", dim_ * dim_);
    sheet_.elementwise += (m.taps + 4) * dim_;
    sheet_.operations += 3;
  }
  void add_mixer(const models::GatedDelta& m) {
    const auto values = double(m.values()), channels = double(m.channels());
    const double decays = m.channel_decay ? double(m.value_heads) * m.key_dim : m.value_heads;
    matrix("mixer input", dim_ * channels);
    matrix("mixer gates",
           m.gate_latent > 0 ? m.gate_latent * (2 * dim_ + values + decays) + dim_ * m.value_heads
                             : dim_ * (values + decays + m.value_heads),
           m.gate_latent > 0 ? 5 : 3);
    matrix("mixer output", values * dim_);
    sheet_.elementwise += m.taps * channels + 4 * values;
    sheet_.operations += 4;
  }
  void add_mixer(const models::StateSpace& m) {
    const auto inner = double(m.inner()), channels = double(m.channels());
    matrix("mixer input", dim_ * (inner + channels + m.heads));
    matrix("mixer output", inner * dim_);
    sheet_.elementwise += m.taps * channels + 4 * inner;
    sheet_.operations += 4;
  }
  void add_mixer(const models::ChannelScan& m) {
    const double made = m.step_rank + 2.0 * m.state_dim;
    matrix("mixer input", 2 * dim_ * m.inner);
    matrix("mixer gates", m.inner * (made + m.step_rank), 2);
    matrix("mixer output", m.inner * dim_);
    sheet_.elementwise += (m.taps + 4.0) * m.inner;
    sheet_.operations += 4;
  }
  void add_mixer(const models::AttentionBesideStateSpace& m) {
    add_mixer(m.attention);
    add_mixer(m.scan);
  }
  void add_mixer(const models::StateSpaceAfterBlock& m) {
    add_mixer(m.attention);
    add_ffn(m.ffn);
    linear("block output", dim_, dim_);
    add_mixer(m.scan);
    sheet_.elementwise += 12 * dim_;
    sheet_.operations += 4;
  }
  void add_mixer(const models::NoMixer&) {}

  void add_ffn(const models::NoFfn&) {}
  void add_ffn(const models::DenseFfn& f) {
    linear(f.gated ? "gate and up" : "up", f.inner * (f.gated ? 2.0 : 1.0), dim_);
    linear("down", dim_, f.inner);
    if (f.adapter_rank > 0) matrix("adapters", f.adapter_rank * (dim_ + f.inner * (f.gated ? 2.0 : 1.0)), 2);
    sheet_.elementwise += (f.gated ? 3.0 : 2.0) * f.inner;
    sheet_.operations += 1;
  }
  void add_ffn(const models::XieluFfn& f) {
    linear("up", f.inner, dim_);
    linear("down", dim_, f.inner);
    sheet_.elementwise += 2.0 * f.inner;
    sheet_.operations += 1;
  }
  void add_ffn(const models::DenseBesideExperts& f) {
    add_ffn(f.dense);
    add_ffn(f.experts);
  }
  void add_ffn(const models::MoeFfn& f) {
    const double each = (f.latent > 0 ? f.latent : dim_) * f.inner * (f.gated ? 3 : 2);
    MatrixGroup& group = group_named("experts");
    group.elements += each * f.routing.experts;
    group.calls += 2;
    group.experts = f.routing.experts;
    group.used = f.routing.used;
    matrix("router", dim_ * f.routing.experts);
    matrix("expert latent", 2 * dim_ * f.latent, 2);
    matrix("shared expert", dim_ * f.shared_inner * (f.gated ? 3 : 2), 2);
    sheet_.elementwise += 3.0 * (f.inner * f.routing.used + f.shared_inner) + dim_ * f.routing.used;
    sheet_.operations += 3;
  }

  ModelSheet& sheet_;
  double dim_;
};

// Query heads of a layer that reads keys.
int heads_of(const models::LayerSpec& layer) {
  if (const auto* both = std::get_if<models::AttentionBesideStateSpace>(&layer.mixer))
    return both->attention.heads;
  if (const auto* block = std::get_if<models::StateSpaceAfterBlock>(&layer.mixer))
    return block->attention.heads;
  if (const auto* latent = std::get_if<models::LatentAttention>(&layer.mixer)) return latent->heads;
  return std::get<models::Attention>(layer.mixer).heads;
}

void add_attention_group(ModelSheet& sheet, const AttentionGroup& one) {
  const auto same = [&](const AttentionGroup& g) {
    return g.window == one.window && g.chosen == one.chosen && g.heads == one.heads &&
           g.kv_heads == one.kv_heads && g.key_dim == one.key_dim && g.value_dim == one.value_dim;
  };
  const auto group = std::find_if(sheet.attention.begin(), sheet.attention.end(), same);
  if (group == sheet.attention.end()) {
    sheet.attention.push_back(one);
    return;
  }
  group->layers += one.layers;
  group->kv_width += one.kv_width;
}

void add_attention_groups(ModelSheet& sheet) {
  const std::vector<models::LayerState> states = models::layer_states(sheet.spec);
  for (size_t i = 0; i < states.size(); ++i) {
    const models::PagedKv* kv = models::kv_of(states, i);
    if (kv == nullptr) continue;
    AttentionGroup group{.layers = 1,
                         .heads = heads_of(sheet.spec.layers[i]),
                         .kv_heads = kv->kv_heads,
                         .key_dim = kv->key_dim,
                         .value_dim = kv->value_dim,
                         .window = kv->window};
    if (!std::holds_alternative<models::KvOf>(states[i]))
      group.kv_width = double(kv->width() - kv->index_dim);
    const models::PositionChoice choice = models::choice_of(sheet.spec.layers[i]);
    group.chosen = static_cast<int>(choice.most);
    add_attention_group(sheet, group);
    if (choice.heads > 0)
      add_attention_group(sheet, {.layers = 1,
                                  .heads = choice.heads,
                                  .kv_heads = 1,
                                  .key_dim = kv->index_dim,
                                  .kv_width = double(kv->index_dim)});
  }
}

// Names of embeddings and output matrices in files of all kinds.
bool is_vocabulary(const TensorView& view, int vocab) {
  return view.rank == 2 && (view.dim(0) == vocab || view.dim(1) == vocab);
}

// Bytes and elements of the stored matrices, by type, layers and vocabulary apart.
struct StoredTypes {
  std::map<DType, double> elements;
  double bytes = 0;

  void add(const TensorView& view) {
    elements[view.dtype] += double(view.elements());
    bytes += double(view.bytes());
  }
  double all() const {
    double sum = 0;
    for (const auto& [type, count] : elements) sum += count;
    return sum;
  }
  DType main() const {
    return std::max_element(elements.begin(), elements.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }
};

void take_stored_types(ModelSheet& sheet, const formats::TensorStore& tensors) {
  StoredTypes layers, vocabulary;
  for (const std::string& name : tensors.names()) {
    const Result<TensorView> view = tensors.find(name);
    if (!view || view->rank < 2) continue;
    (is_vocabulary(*view, sheet.spec.vocab) ? vocabulary : layers).add(*view);
  }
  if (layers.all() > 0) {
    sheet.weights = layers.main();
    sheet.bytes_per_weight = layers.bytes / layers.all();
  }
  sheet.output_type = sheet.weights;
  sheet.bytes_per_output = sheet.bytes_per_weight;
  if (vocabulary.all() > 0) {
    sheet.output_type = vocabulary.main();
    sheet.bytes_per_output = vocabulary.bytes / vocabulary.all();
  }
  sheet.stored_bytes = double(tensors.total_bytes());
}

// A group some of whose matrices have no known shape has none.
void settle_shapes(ModelSheet& sheet) {
  for (MatrixGroup& group : sheet.matrices) {
    int calls = 0;
    for (const MatrixShape& shape : group.shapes) calls += shape.calls;
    if (calls != group.calls) group.shapes.clear();
  }
}

}  // namespace

std::vector<StepGemm> step_gemms(const ModelSheet& sheet) {
  std::vector<StepGemm> out;
  for (int layer = 0, before = -1; before != std::ssize(out); ++layer) {
    before = static_cast<int>(out.size());
    for (const MatrixGroup& group : sheet.matrices)
      for (const MatrixShape& shape : group.shapes)
        if (layer < shape.calls) out.push_back({sheet.weights, shape.outputs, shape.inputs});
  }
  for (const MatrixShape& shape : sheet.output.shapes)
    out.push_back({sheet.output_type, shape.outputs, shape.inputs});
  return out;
}

double ModelSheet::kv_bytes(double context, int devices) const {
  double numbers = 0;
  for (const AttentionGroup& group : attention)
    numbers += group.kv_width * group.kept(context) / group.kv_share(devices);
  const double state = double(models::state_bytes(models::layer_states(spec))) / devices;
  return numbers * info(kv_type).block_bytes + state;
}

double ModelSheet::layer_elements() const {
  double sum = 0;
  for (const MatrixGroup& group : matrices) sum += group.elements;
  return sum;
}

ModelSheet make_sheet(const models::ModelFiles& files, const SheetOptions& options) {
  ModelSheet sheet;
  std::filesystem::path place(files.path);
  if (place.filename() == "config.json") place = std::filesystem::absolute(place).parent_path();
  sheet.name = place.extension() == ".gguf" ? place.stem().string() : place.filename().string();
  sheet.spec = files.spec;
  sheet.kv_type = options.kv_type;
  SheetBuilder builder(sheet);
  for (const models::LayerSpec& layer : files.spec.layers) builder.add(layer);
  const int64_t width = models::embedding_width(files.spec);
  sheet.output = {.name = "output",
                  .elements = double(files.spec.vocab) * double(width),
                  .calls = 1,
                  .shapes = {{files.spec.vocab, width, 1}}};
  settle_shapes(sheet);
  add_attention_groups(sheet);
  if (files.tensors.size() > 0 && !options.weights) {
    take_stored_types(sheet, files.tensors);
    return sheet;
  }
  sheet.weights = sheet.output_type = options.weights.value_or(DType::BF16);
  sheet.bytes_per_weight = sheet.bytes_per_output = stored_size(sheet.weights);
  sheet.stored_bytes = double(models::parameter_count(files.spec)) * sheet.bytes_per_weight;
  return sheet;
}

}  // namespace sluice::lab
