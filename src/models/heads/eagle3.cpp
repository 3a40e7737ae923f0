#include <fmt/format.h>

#include "formats/quote.h"
#include "formats/safetensors/safetensors.h"
#include "models/family.h"
#include "models/heads/head.h"
#include "models/loading/bind_parts.h"
#include "models/loading/config/config.h"

namespace sluice::models {

namespace {

Error refused(const std::string& folder, const std::string& why) {
  return {ErrorCode::Unsupported, fmt::format("{}: {}", formats::quote_path(folder), why), "speculate"};
}

// The layer of a Llama, beside the tokens' embeddings.
Result<ModelSpec> read_spec(Config& config, const std::string& folder) {
  if (config.flag_or("norm_before_residual", false))
    return refused(folder,
                   "'norm_before_residual' is true; the residual of an EAGLE-3 head is read without a norm");
  config.set_architecture("LlamaForCausalLM");
  const int vocab = config.size_or("draft_vocab_size", config.size_or("vocab_size", 0));
  Result<ModelSpec> spec = build_spec(config);
  if (!spec) return formats::about_file(folder, spec.error());
  if (spec->layers.size() != 1)
    return refused(
        folder, fmt::format("'num_hidden_layers' is {}; an EAGLE-3 head has one layer", spec->layers.size()));
  spec->layers[0].wiring = Wiring::BesideTokens;
  attention(spec->layers[0]).input_dim = 2 * spec->dim;
  spec->vocab = vocab;
  spec->names = spec->names.with({{WeightSlot::HeadFusion, "fc"},
                                  {WeightSlot::MixerPostNorm, "model.layers.{l}.hidden_norm"},
                                  {WeightSlot::OutputNorm, "norm"}});
  return spec;
}

// Those that the config names, or else one near the first layer, the middle one and one near the last.
std::vector<int> taps_of(Config& config, int layers) {
  std::vector<int> taps;
  for (const double layer : config.sub("eagle_config").numbers("eagle_aux_hidden_state_layer_ids"))
    taps.push_back(static_cast<int>(layer));
  if (taps.empty()) taps = {2, layers / 2, layers - 3};
  return taps;
}

Status check_taps(const std::vector<int>& taps, const ModelSpec& target, const std::string& folder) {
  const auto layers = static_cast<int>(target.layers.size());
  for (const int tap : taps) {
    if (tap < 0 || tap >= layers)
      return refused(folder, fmt::format("it reads layer {} of a model, this one has {}", tap, layers));
    const Wiring wiring = target.layers[static_cast<size_t>(tap)].wiring;
    if (wiring != Wiring::PreNorm && wiring != Wiring::Sandwich)
      return refused(folder, fmt::format("it reads what enters layer {}, which starts without a norm", tap));
  }
  return {};
}

// "d2t" has, for each row of the output matrix, how far the target's token is from it.
Result<std::vector<Token>> tokens_of(const formats::TensorStore& store, const ModelSpec& spec,
                                     int target_vocab, const std::string& folder) {
  std::vector<Token> tokens;
  if (!store.contains("d2t")) {
    if (spec.vocab == target_vocab) return tokens;
    return refused(
        folder, fmt::format("it has {} tokens, the model {}, and no tensor 'd2t'", spec.vocab, target_vocab));
  }
  const Result<std::vector<int64_t>> distances = store.find_integers("d2t");
  if (!distances) return distances.error();
  if (distances->size() != static_cast<size_t>(spec.vocab))
    return refused(folder, fmt::format("'d2t' has {} entries for {} tokens", distances->size(), spec.vocab));
  for (size_t i = 0; i < distances->size(); ++i) {
    const int64_t distance = (*distances)[i], most = target_vocab;
    if (distance < -most || distance > most || distance + static_cast<int64_t>(i) < 0 ||
        distance + static_cast<int64_t>(i) >= most)
      return refused(
          folder, fmt::format("entry {} of 'd2t' is {}, which is no token of {}", i, distance, target_vocab));
    tokens.push_back(static_cast<Token>(distance + static_cast<int64_t>(i)));
  }
  return tokens;
}

void bind(Head& head, const formats::TensorStore& store, const Model& target, Binder& binder) {
  Model& model = *head.model;
  const ModelSpec& spec = model.spec();
  ModelWeights& w = model.weights;
  head.fusion = binder.matrix(WeightSlot::HeadFusion,
                              {spec.dim, static_cast<int64_t>(head.taps.size()) * target.spec().dim});
  w.output_norm = bind_norm(binder, spec, WeightSlot::OutputNorm, spec.dim);
  const bool own = binder.has(WeightSlot::TokenEmbedding);
  w.embedding = own ? binder.matrix(WeightSlot::TokenEmbedding, {target.spec().vocab, spec.dim})
                    : target.weights.embedding;
  w.output = binder.has(WeightSlot::Output) ? binder.matrix(WeightSlot::Output, {spec.vocab, spec.dim})
                                            : target.weights.output;
  for (const Rope& rope : spec.ropes) w.ropes.push_back(bind_rope(binder, rope));
  binder.set_layer(0, store.contains("midlayer.hidden_norm.weight") ? "midlayer" : "layers.0");
  w.layers.push_back(bind_layer(binder, spec, spec.layers.front(), Placement()));
  binder.drop_unread();
}

}  // namespace

Result<Head> load_eagle3_head(const std::string& folder, const Model& target) {
  if (target.group) return refused(folder, "several ranks compute the model, which no head guesses for");
  Result<json::object> object = read_config_file(folder + "/config.json");
  if (!object) return object.error();
  Result<Config> config = Config::from_json(std::move(*object), folder + "/config.json");
  if (!config) return config.error();
  Result<formats::Safetensors> files = formats::open_safetensors(folder);
  if (!files) return files.error();
  Result<ModelSpec> spec = read_spec(*config, folder);
  if (!spec) return spec.error();
  Head head{.kind = Head::Kind::Eagle3, .model = std::make_unique<Model>()};
  head.taps = taps_of(*config, static_cast<int>(target.spec().layers.size()));
  if (Status status = check_taps(head.taps, target.spec(), folder); !status) return status.error();
  Result<std::vector<Token>> tokens = tokens_of(files->tensors, *spec, target.spec().vocab, folder);
  if (!tokens) return tokens.error();
  head.tokens = std::move(*tokens);
  if (spec->dim != target.spec().dim && !files->tensors.contains("embed_tokens.weight"))
    return refused(folder, fmt::format("it is {} wide, the model {}, whose embeddings it would read",
                                       spec->dim, target.spec().dim));
  Model& model = *head.model;
  model.backend = target.backend;
  model.files.path = folder;
  model.files.spec = std::move(*spec);
  model.files.tensors = std::move(files->tensors);
  Binder binder(model.files.spec, model.files.tensors, *model.backend, model.weights);
  bind(head, model.files.tensors, target, binder);
  if (!binder.status()) return formats::about_file(folder, binder.status().error());
  return head;
}

}  // namespace sluice::models
