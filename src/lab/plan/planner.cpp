#include "lab/plan/planner.h"

#include <algorithm>
#include <cmath>

#include "llm/engine_flags.h"
#include "models/spec.h"

namespace sluice::lab {

namespace {

constexpr int kLargestBatch = 1 << 16;

// Of one device.
double room_for_kv(const CostModel& model, const PlanOptions& options) {
  return model.machine().memory * options.memory_share - model.device_weights();
}

int64_t largest_batch(const CostModel& model, const PlanOptions& options, int context) {
  const double room = room_for_kv(model, options), each = model.device_kv(context);
  return room <= 0 ? 0 : static_cast<int64_t>(room / std::max(1.0, each));
}

// The least that the machine's limits allow: weights and KV are read, activations stay in caches.
double decode_floor(const CostModel& model, int batch, int context, Bound& bound) {
  double reading = 0, multiplying = 0;
  for (const PlannedOperation& one : model.operations({batch, 1, double(context)})) {
    if (one.operations <= 0) continue;
    reading += one.bytes / model.machine().read;
    multiplying += one.operations / model.machine().multiply_rate(model.sheet().weights);
  }
  bound = reading >= multiplying ? Bound::Memory : Bound::Compute;
  return std::max(reading, multiplying);
}

std::optional<int> compute_bound_from(const CostModel& model, int context) {
  Bound bound = Bound::Memory;
  const auto computes = [&](int batch) {
    decode_floor(model, batch, context, bound);
    return bound == Bound::Compute;
  };
  if (!computes(kLargestBatch)) return std::nullopt;
  int low = 0, high = kLargestBatch;  // computes(high), not computes(low)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (computes(middle) ? high : low) = middle;
  }
  return high;
}

PlanCell make_cell(const Plan& plan, int batch, int context) {
  const CostModel& model = plan.model;
  PlanCell cell{.batch = batch, .context = context};
  cell.fits = batch <= largest_batch(model, plan.options, context);
  cell.ttft = model.prompt_seconds(context, 0, plan_step_tokens(plan.options, model));
  cell.tpot = model.seconds({batch, 1, double(context)});
  cell.floor = decode_floor(model, batch, context, cell.bound);
  cell.cost = cost_of_million(plan.price, cell.throughput());
  return cell;
}

PlannedPhase make_phase(const CostModel& model, std::string name, const StepShape& shape) {
  return {std::move(name), shape, model.operations(shape), model.seconds(shape)};
}

}  // namespace

int plan_step_tokens(const PlanOptions& options, const CostModel& model) {
  if (options.step_tokens > 0) return options.step_tokens;
  return llm::default_step_tokens(model.machine().host_link > 0,
                                  models::active_parameter_count(model.sheet().spec));
}

double cost_of_million(double price, double tokens_per_second) {
  return price / 3600 / tokens_per_second * 1e6;
}

Plan make_plan(ModelSheet sheet, Machine machine, const PlanOptions& options) {
  Plan plan{.model = CostModel(std::move(sheet), std::move(machine), options.cut), .options = options};
  const CostModel& model = plan.model;
  plan.price = plan.options.price.value_or(model.machine().price) * model.cut().devices();
  const double room = room_for_kv(model, plan.options);
  const int context = model.sheet().spec.context;
  plan.fitting_tokens = std::max(0.0, room / std::max(1.0, model.device_kv(context) / context));
  for (const int each : plan.options.contexts)
    plan.rooms.push_back({each, model.sheet().kv_bytes(each), largest_batch(model, plan.options, each),
                          compute_bound_from(model, each)});
  for (const int batch : plan.options.batches)
    for (const int each : plan.options.contexts) plan.cells.push_back(make_cell(plan, batch, each));
  const int middle = plan.options.contexts[plan.options.contexts.size() / 2];
  plan.reference = make_cell(plan, plan.options.batches.front(), middle);
  for (const int batch : plan.options.batches)
    if (const PlanCell cell = make_cell(plan, batch, middle); cell.fits) plan.reference = cell;
  const int step = std::min(plan_step_tokens(plan.options, model), middle);
  plan.phases.push_back(make_phase(model, "prefill", {1, step, 0}));
  plan.phases.push_back(make_phase(model, "decode, batch 1", {1, 1, double(middle)}));
  if (plan.reference.batch > 1)
    plan.phases.push_back(make_phase(model, "decode, batch " + std::to_string(plan.reference.batch),
                                     {plan.reference.batch, 1, double(middle)}));
  if (model.machine().host_link > 0) {
    plan.weights_over_link = model.device_weights() / model.machine().host_link;
    plan.kv_over_link = model.device_kv(middle) / model.machine().host_link;
  }
  plan.kv_again = model.prompt_seconds(middle, 0, plan_step_tokens(plan.options, model));
  plan.changes = plan_changes(plan);
  return plan;
}

}  // namespace sluice::lab
