// `compress`: the request's texts are made shorter before the model reads them. Of every dialect that generates text.
#pragma once

#include <span>

#include "api/fields/field_table.h"

namespace sluice::api {

std::span<const Field> compress_field();

}  // namespace sluice::api
