#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "formats/quote.h"
#include "models/heads/head.h"
#include "models/loading/bind_parts.h"
#include "models/loading/locate.h"
#include "models/quantized/quantized_matrix.h"

namespace sluice::models {

namespace {

// How files name a head. "{l}" is the number behind the model's last layer.
struct Layout {
  std::string_view fusion, token_norm, hidden_norm, output_norm;
  std::string_view embedding, output;  // its own, where it has them; empty: it never has
  std::string_view layer;              // what names of its layer begin with; empty: as those of the model's
  bool hidden_first = false;
  Fold norms = Fold::None;
};

constexpr Layout kLayouts[] = {
    // DeepSeek 3, GLM 4.5
    {"model.layers.{l}.eh_proj", "model.layers.{l}.enorm", "model.layers.{l}.hnorm",
     "model.layers.{l}.shared_head.norm", "model.layers.{l}.embed_tokens",
     "model.layers.{l}.shared_head.head", ""},
    {"blk.{l}.nextn.eh_proj", "blk.{l}.nextn.enorm", "blk.{l}.nextn.hnorm", "blk.{l}.nextn.shared_head_norm",
     "blk.{l}.nextn.embed_tokens", "blk.{l}.nextn.shared_head_head", ""},
    // MiMo
    {"model.mtp_layers.0.input_proj", "model.mtp_layers.0.token_layernorm",
     "model.mtp_layers.0.hidden_layernorm", "model.mtp_layers.0.final_layernorm", "", "",
     "model.mtp_layers.0", true},
    // Qwen 3 Next, 3.5
    {"mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", "", "", "mtp.layers.0",
     false, Fold::AddOne},
};

std::string numbered(std::string_view stem, size_t layer) {
  std::string text(stem);
  if (const size_t at = text.find("{l}"); at != std::string::npos) text.replace(at, 3, std::to_string(layer));
  return text;
}

const Layout* layout_of(const ModelFiles& files) {
  for (const Layout& layout : kLayouts)
    if (has_matrix(files.tensors, numbered(layout.fusion, files.spec.layers.size()))) return &layout;
  return nullptr;
}

// Whether the head's tensor is there and differs from the target's: most files repeat the target's embedding and output.
bool is_own(const Model& target, std::string_view stem, WeightSlot slot) {
  const formats::TensorStore& store = target.files.tensors;
  const std::string name = numbered(stem, target.spec().layers.size());
  if (stem.empty() || !has_matrix(store, name)) return false;
  const std::optional<std::string> own = locate_tensor(store, name, ".weight");
  for (const NameRow& row : target.spec().names.rows(slot)) {
    const std::optional<std::string> other = locate_tensor(store, std::string(row.stem), ".weight");
    if (!own || !other) continue;
    const Result<TensorView> a = store.find(*own), b = store.find(*other);
    if (!a || !b || a->dtype != b->dtype || a->elements() != b->elements()) return true;
    const int64_t bytes = row_bytes(a->dtype, a->elements());
    return std::memcmp(a->data, b->data, static_cast<size_t>(bytes)) != 0;
  }
  return true;
}

// The layer of the target that the head's is like: the last one, of models with layers that keep a state the last one
// without.
const LayerSpec& pattern_of(const ModelSpec& target) {
  const auto attends = [](const LayerSpec& layer) { return recurrent_kind(layer).empty(); };
  const auto found = std::find_if(target.layers.rbegin(), target.layers.rend(), attends);
  return found == target.layers.rend() ? target.layers.back() : *found;
}

// The target's, with that layer alone.
ModelSpec head_spec(const ModelSpec& target, const Layout& layout) {
  ModelSpec spec = target;
  spec.layers = {pattern_of(target)};
  spec.positions = Positions::None;
  spec.embedding_norm = false;
  spec.output_norm = true;
  spec.names = target.names.with({{WeightSlot::HeadFusion, layout.fusion},
                                  {WeightSlot::HeadTokenNorm, layout.token_norm, layout.norms},
                                  {WeightSlot::HeadHiddenNorm, layout.hidden_norm, layout.norms},
                                  {WeightSlot::OutputNorm, layout.output_norm, layout.norms}});
  return spec;
}

Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, std::move(message), "speculate"};
}

Status check(const ModelSpec& target) {
  if (target.per_layer_embedding > 0 || target.streams.count > 0 || target.embedding_dim > 0)
    return unsupported(fmt::format("the head of a model of the family '{}' is not known", target.family));
  const LayerSpec& pattern = pattern_of(target);
  const auto* attention = std::get_if<Attention>(&pattern.mixer);
  const auto* latent = std::get_if<LatentAttention>(&pattern.mixer);
  const bool chosen_before = latent != nullptr && latent->indexer.chosen > 0 && latent->indexer.heads == 0;
  if (pattern.wiring != Wiring::PreNorm || !recurrent_kind(pattern).empty() || chosen_before ||
      (attention != nullptr && attention->kv_from >= 0))
    return unsupported(
        "the head would have a layer like the model's last one that attends, which cannot stand alone");
  return {};
}

}  // namespace

Result<Head> load_mtp_head(const Model& target) {
  const Layout* layout = layout_of(target.files);
  if (layout == nullptr)
    return Error{
        ErrorCode::NotFound,
        fmt::format("{} has no head for multi-token prediction", formats::quote_path(target.files.path)),
        "speculate"};
  if (target.group) return unsupported("several ranks compute the model, which no head guesses for");
  if (Status status = check(target.spec()); !status) return status.error();
  Head head{.kind = Head::Kind::Mtp, .model = std::make_unique<Model>()};
  head.hidden_first = layout->hidden_first;
  Model& model = *head.model;
  model.backend = target.backend;
  model.files.path = target.files.path;
  ModelSpec& spec = model.files.spec = head_spec(target.spec(), *layout);
  const bool own_embedding = is_own(target, layout->embedding, WeightSlot::TokenEmbedding);
  const bool own_output = is_own(target, layout->output, WeightSlot::Output);
  if (own_embedding) spec.names = spec.names.with({{WeightSlot::TokenEmbedding, layout->embedding}});
  if (own_output) spec.names = spec.names.with({{WeightSlot::Output, layout->output}});

  ModelWeights& w = model.weights;
  Binder binder(spec, target.files.tensors, *model.backend, w);
  binder.set_layer(static_cast<int>(target.spec().layers.size()));
  head.fusion = binder.matrix(WeightSlot::HeadFusion, {spec.dim, int64_t{2} * spec.dim});
  head.token_norm = bind_norm(binder, spec, WeightSlot::HeadTokenNorm, spec.dim);
  head.hidden_norm = bind_norm(binder, spec, WeightSlot::HeadHiddenNorm, spec.dim);
  w.output_norm = bind_norm(binder, spec, WeightSlot::OutputNorm, spec.dim);
  const Extent vocabulary{spec.vocab, spec.dim};
  w.embedding =
      own_embedding ? binder.matrix(WeightSlot::TokenEmbedding, vocabulary) : target.weights.embedding;
  w.output = own_output ? binder.matrix(WeightSlot::Output, vocabulary) : target.weights.output;
  w.ropes = target.weights.ropes;
  binder.set_layer(static_cast<int>(target.spec().layers.size()), layout->layer);
  w.layers.push_back(bind_layer(binder, spec, spec.layers.front(), Placement()));
  binder.drop_unread();
  if (!binder.status()) return formats::about_file(target.files.path, binder.status().error());
  return head;
}

}  // namespace sluice::models
