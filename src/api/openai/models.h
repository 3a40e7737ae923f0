// The models that are served, by name and as lists.
#pragma once

#include <string_view>

#include "api/core/service.h"

namespace sluice::api {

// The model of this name or alias, with or without the tag ":latest"; nullptr where there is none. An empty name means
// the default model.
const ServedModel* find_model(const Call& call, std::string_view name);

// The values that are given, under the names of request fields; `penalty` is that of the repetition penalty.
json::object defaults_json(const request::SamplingDefaults& defaults, std::string_view penalty);

Reply list_models(const Call& call);     // GET /v1/models
Reply retrieve_model(const Call& call);  // GET /v1/models/{model}

}  // namespace sluice::api
