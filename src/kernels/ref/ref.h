// The reference back-end: the meaning of every operation.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace sluice::kernels {

std::unique_ptr<Backend> make_ref_backend();

}  // namespace sluice::kernels
