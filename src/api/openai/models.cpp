#include "api/openai/models.h"

#include <algorithm>

#include "api/core/errors.h"

namespace sluice::api {

namespace {

json::object card(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "sluice"},
          {"root", model.id},
          {"parent", nullptr},
          {"max_model_len", model.context},
          {"meta",
           {{"n_ctx_train", model.context},
            {"n_vocab", model.vocab},
            {"n_params", model.parameters},
            {"size", model.bytes},
            {"architecture", model.architecture},
            {"quantization", model.quantization},
            {"sampling", defaults_json(model.defaults, "repetition_penalty")}}}};
}

// A name without a tag means the one that Ollama gives it.
std::string_view without_tag(std::string_view name) {
  constexpr std::string_view kTag = ":latest";
  if (name.ends_with(kTag)) name.remove_suffix(kTag.size());
  return name;
}

}  // namespace

json::object defaults_json(const request::SamplingDefaults& defaults, std::string_view penalty) {
  json::object out;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) out[name] = *value;
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add(penalty, defaults.repetition_penalty);
  return out;
}

const ServedModel* find_model(const Call& call, std::string_view name) {
  if (call.models.empty()) return nullptr;
  if (name.empty()) return &call.models.front();
  const auto is_meant = [wanted = without_tag(name)](std::string_view known) {
    return without_tag(known) == wanted;
  };
  for (const ServedModel& model : call.models)
    if (is_meant(model.id) || std::any_of(model.aliases.begin(), model.aliases.end(), is_meant))
      return &model;
  return call.any_model_name ? &call.models.front() : nullptr;
}

Reply list_models(const Call& call) {
  json::array cards;
  for (const ServedModel& model : call.models) cards.push_back(card(model));
  return Answer{.body = write_json(json::object{{"object", "list"}, {"data", cards}})};
}

Reply retrieve_model(const Call& call) {
  const ServedModel* model = find_model(call, call.rest);
  if (model == nullptr) return model_not_found(call, call.rest);
  return Answer{.body = write_json(card(*model))};
}

}  // namespace sluice::api
