// One point of a plan for a page that asks again and again: a batch and a context on a machine.
#pragma once

#include "base/json.h"
#include "lab/plan/planner.h"

namespace sluice::lab {

// {machine, model, cell, room, decode: {...}, prefill: {...}, curve: [...]}: the cell as plan_json() has it; each phase
// with its operations, their sums and time; the curve is decode over batches at the same context.
json::object what_if_json(const ModelSheet& sheet, const Machine& machine, int batch, int context);

}  // namespace sluice::lab
