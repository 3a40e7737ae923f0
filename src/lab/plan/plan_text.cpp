// A plan for people: tables, and the same in words.
#include <fmt/format.h>

#include <algorithm>

#include "lab/plan/plan_units.h"
#include "lab/plan/planner.h"

namespace sluice::lab {

namespace {

std::string cost_cell(double cost) {
  return cost > 0 ? fmt::format("{:.3f}", cost) : "-";
}

std::string cells_table(const Plan& plan) {
  std::string out =
      "| batch | context | fits | TTFT | TPOT | tokens/s | floor | bound | per million |\n"
      "|---:|---:|---|---:|---:|---:|---:|---|---:|\n";
  for (const PlanCell& cell : plan.cells)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {:.0f} % | {} | {} |\n", cell.batch, cell.context,
                       cell.fits ? "yes" : "no", time_text(cell.ttft), time_text(cell.tpot),
                       count_text(cell.throughput()), cell.floor / cell.tpot * 100, bound_text(cell.bound),
                       cost_cell(cell.cost));
  return out;
}

std::string operations_table(const PlannedPhase& phase) {
  std::string out = fmt::format(
      "\n{} ({} x {} tokens behind {:.0f}): {}\n\n| operation | bytes | operations | per byte | time | bound "
      "|\n"
      "|---|---:|---:|---:|---:|---|\n",
      phase.name, phase.shape.sequences, phase.shape.tokens, phase.shape.depth, time_text(phase.seconds));
  for (const PlannedOperation& one : phase.operations)
    out += fmt::format("| {} | {} | {:.3g} | {:.1f} | {} | {} |\n", one.name, size_text(one.bytes),
                       one.operations, one.intensity(), time_text(one.seconds), bound_text(one.bound));
  return out;
}

std::string changes_table(const Plan& plan) {
  std::string out = fmt::format(
      "\nWhat would change, batch {} at {} tokens:\n\n| change | TTFT | TPOT | tokens/s | per million | |\n"
      "|---|---:|---:|---:|---:|---|\n",
      plan.reference.batch, plan.reference.context);
  for (const PlanChange& change : plan.changes)
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", change.name, time_text(change.ttft),
                       time_text(change.tpot), count_text(change.throughput), cost_cell(change.cost),
                       change.fits ? "" : "does not fit");
  return out;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  const ModelSheet& sheet = plan.model.sheet();
  const Machine& machine = plan.model.machine();
  std::string out =
      fmt::format("{} on {}\nweights {} in {}, KV {} per token in {} at the full context of {}\n", sheet.name,
                  plan.model.machine_text(), size_text(sheet.stored_bytes), name(sheet.weights),
                  size_text(sheet.kv_bytes(sheet.spec.context) / sheet.spec.context), name(sheet.kv_type),
                  sheet.spec.context);
  if (plan.model.cut().devices() > 1)
    out +=
        fmt::format("tensor parallel {}, stages {}: {} of weights and {} of KV per token on a device\n",
                    plan.model.cut().tensor, plan.model.cut().stages, size_text(plan.model.device_weights()),
                    size_text(plan.model.device_kv(sheet.spec.context) / sheet.spec.context));
  out += fmt::format("memory {}, of which {:.0f} % may be used: {} tokens of KV fit beside the weights\n\n",
                     size_text(machine.memory), plan.options.memory_share * 100,
                     count_text(plan.fitting_tokens));
  out +=
      "| context | KV of a sequence | largest batch | decode is compute-bound from batch "
      "|\n|---:|---:|---:|---:|\n";
  for (const ContextRoom& room : plan.rooms)
    out += fmt::format("| {} | {} | {} | {} |\n", room.context, size_text(room.kv_bytes), room.largest_batch,
                       room.compute_bound_from ? std::to_string(*room.compute_bound_from) : "never");
  out += "\n" + cells_table(plan);
  for (const PlannedPhase& phase : plan.phases) out += operations_table(phase);
  if (plan.weights_over_link > 0)
    out += fmt::format(
        "\nOver the host link of {}/s: all weights {}, KV of {} tokens {}; computing that KV again {}\n",
        size_text(machine.host_link), time_text(plan.weights_over_link), plan.reference.context,
        time_text(plan.kv_over_link), time_text(plan.kv_again));
  return out + changes_table(plan);
}

std::string plan_words(const Plan& plan) {
  const ModelSheet& sheet = plan.model.sheet();
  const Machine& machine = plan.model.machine();
  const PlanCell& cell = plan.reference;
  const double all = double(models::parameter_count(sheet.spec)),
               active = double(models::active_parameter_count(sheet.spec));
  std::string out = fmt::format(
      "{} has {} parameters{}, stored in {}. {} reads {}/s, so that reading all weights once takes {}.\n",
      sheet.name, count_text(all),
      active < 0.8 * all ? fmt::format(", {} of them active for a token", count_text(active)) : "",
      size_text(sheet.stored_bytes), machine.name, size_text(machine.read),
      time_text(sheet.stored_bytes / machine.read));
  if (plan.fitting_tokens <= 0)
    out += fmt::format("The weights do not fit into {} of memory.\n",
                       size_text(machine.memory * plan.model.cut().devices()));
  out += fmt::format(
      "Prefill runs the whole prompt as matrices: {} tokens are predicted to take {}. Decode reads every "
      "weight "
      "for each token: alone, a token takes {}; {} sequences at once share the reading, {} a step, {} "
      "tokens "
      "a second in all.\n",
      cell.context, time_text(cell.ttft), time_text(plan.model.seconds({1, 1, double(cell.context)})),
      cell.batch, time_text(cell.tpot), count_text(cell.throughput()));
  const ContextRoom& room = plan.rooms[plan.options.contexts.size() / 2];
  out += room.compute_bound_from
             ? fmt::format("At {} tokens decode turns compute-bound at batch {}", room.context,
                           *room.compute_bound_from)
             : fmt::format(
                   "At {} tokens decode never turns compute-bound: the KV of every further sequence "
                   "must be read as well",
                   room.context);
  out += fmt::format("; memory has room for {} such sequences.\n", room.largest_batch);
  const auto best = std::max_element(plan.changes.begin() + 1, plan.changes.end(),
                                     [](const PlanChange& a, const PlanChange& b) {
                                       return (a.fits ? a.throughput : 0) < (b.fits ? b.throughput : 0);
                                     });
  if (best != plan.changes.end() && best->fits)
    out += fmt::format("Of the changes listed, '{}' gives most: {} tokens a second, {:.2f} times as many.\n",
                       best->name, count_text(best->throughput), best->throughput / cell.throughput());
  if (cell.cost > 0)
    out += fmt::format("At {:.2f} an hour a million generated tokens cost {:.3f}.\n", plan.price, cell.cost);
  out += machine.measured()
             ? "The times come from rates measured on this machine.\n"
             : fmt::format(
                   "The times assume that steps reach {:.0f} % of the published bandwidth and {:.0f} % of "
                   "the published operations.\n",
                   machine.read_share * 100, machine.multiply_share * 100);
  return out;
}

}  // namespace sluice::lab
