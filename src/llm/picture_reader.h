// Reads pictures for a model: decodes them and cuts them as its family's processor does.
#pragma once

#include <memory>

#include "engine/picture_prompt.h"
#include "models/model.h"

namespace sluice::llm {

// Null where the model's files have no tower that is known. The model outlives it.
std::unique_ptr<engine::PictureReader> make_picture_reader(const models::Model& model);

}  // namespace sluice::llm
