// Rows of a matrix that is made while a model is loaded, by several threads.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace sluice::models {

// Calls range(first, end) for ranges that cover [0, rows), each but the last of a multiple of `grain` rows: by as many threads as
// compute by default, where the matrix is large enough for them to be worth starting.
void for_rows(int64_t rows, int64_t cols, int64_t grain, FunctionRef<void(int64_t, int64_t)> range);

}  // namespace sluice::models
