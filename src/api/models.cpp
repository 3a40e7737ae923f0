#include "api/models.h"

#include <algorithm>

#include "api/errors.h"

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
            {"quantization", model.quantization}}}};
}

}  // namespace

const ServedModel* find_model(const Call& call, std::string_view name) {
  if (name.empty()) return &call.models.front();
  for (const ServedModel& model : call.models) {
    const auto& aliases = model.aliases;
    if (model.id == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return &model;
  }
  return call.any_model_name ? &call.models.front() : nullptr;
}

Reply list_models(const Call& call) {
  json::array cards;
  for (const ServedModel& model : call.models) cards.push_back(card(model));
  return Answer{.body = write_json(json::object{{"object", "list"}, {"data", cards}})};
}

Reply retrieve_model(const Call& call) {
  const ServedModel* model = find_model(call, call.rest);
  if (model == nullptr) return model_not_found(call.rest);
  return Answer{.body = write_json(card(*model))};
}

}  // namespace sluice::api
