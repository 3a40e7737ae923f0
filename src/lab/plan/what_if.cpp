#include "lab/plan/what_if.h"

#include <algorithm>

#include "lab/plan/plan_units.h"

namespace sluice::lab {

namespace {

constexpr int kMostCurveBatch = 512;

json::object phase_with_sums(const CostModel& model, const StepShape& shape) {
  json::array operations;
  double bytes = 0, work = 0, seconds = 0;
  for (const PlannedOperation& one : model.operations(shape)) {
    seconds += one.seconds;
    if (one.operations <= 0) continue;
    bytes += one.bytes;
    work += one.operations;
    operations.push_back(json::object{{"name", one.name},
                                      {"bytes", one.bytes},
                                      {"operations", one.operations},
                                      {"seconds", one.seconds},
                                      {"bound", bound_text(one.bound)}});
  }
  return {{"sequences", shape.sequences}, {"tokens", shape.tokens}, {"bytes", bytes},
          {"operations", work},           {"seconds", seconds},     {"parts", std::move(operations)}};
}

json::object cell_of(const Plan& plan) {
  const PlanCell& cell = plan.cells.front();
  const ContextRoom& room = plan.rooms.front();
  json::object out = cell_json(cell);
  out["kv_bytes"] = room.kv_bytes * cell.batch;
  out["largest_batch"] = room.largest_batch;
  if (room.compute_bound_from) out["compute_bound_from"] = *room.compute_bound_from;
  return out;
}

}  // namespace

json::object what_if_json(const ModelSheet& sheet, const Machine& machine, int batch, int context) {
  PlanOptions options;
  options.batches = {batch};
  options.contexts = {context};
  const Plan plan = make_plan(sheet, machine, options);
  json::array curve;
  for (int each = 1; each <= kMostCurveBatch; each *= 2)
    curve.push_back(json::array{each, plan.model.seconds({each, 1, double(context)})});
  const int prompt = std::min(context, plan_step_tokens(options, plan.model));
  return {{"machine",
           {{"name", machine.name},
            {"measured", machine.measured()},
            {"memory_bytes", machine.memory},
            {"read_bytes_per_s", machine.read},
            {"multiply_ops_per_s", machine.multiply_rate(sheet.weights)}}},
          {"model",
           {{"name", sheet.name},
            {"weights", name(sheet.weights)},
            {"weights_bytes", sheet.stored_bytes},
            {"context", sheet.spec.context}}},
          {"cell", cell_of(plan)},
          {"decode", phase_with_sums(plan.model, {batch, 1, double(context)})},
          {"prefill", phase_with_sums(plan.model, {1, prompt, 0})},
          {"curve", std::move(curve)}};
}

}  // namespace sluice::lab
