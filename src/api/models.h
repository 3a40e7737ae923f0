// The models that are served, by name and as lists.
#pragma once

#include <string_view>

#include "api/service.h"

namespace sluice::api {

// The model of this name or alias; nullptr where there is none. An empty name means the default model.
const ServedModel* find_model(const Call& call, std::string_view name);

Reply list_models(const Call& call);     // GET /v1/models
Reply retrieve_model(const Call& call);  // GET /v1/models/{model}

}  // namespace sluice::api
