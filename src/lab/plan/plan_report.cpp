// A plan for programs, and as a page with its roofline.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "lab/html/chart.h"
#include "lab/html/page.h"
#include "lab/plan/plan_units.h"
#include "lab/plan/planner.h"

namespace sluice::lab {

namespace {

json::object phase_json(const PlannedPhase& phase) {
  json::array operations;
  for (const PlannedOperation& one : phase.operations)
    operations.push_back(json::object{{"name", one.name},
                                      {"bytes", one.bytes},
                                      {"operations", one.operations},
                                      {"intensity", one.intensity()},
                                      {"seconds", one.seconds},
                                      {"bound", bound_text(one.bound)}});
  return {{"name", phase.name},           {"sequences", phase.shape.sequences},
          {"tokens", phase.shape.tokens}, {"depth", phase.shape.depth},
          {"seconds", phase.seconds},     {"operations", std::move(operations)}};
}

// Operations a second over operations per byte: the roof, and each operation where it is predicted to run.
std::string roofline_figure(const Plan& plan) {
  const Machine& machine = plan.model.machine();
  const double peak = machine.multiply_rate(plan.model.sheet().weights);
  const double ridge = peak / machine.read;
  Chart chart{.title = fmt::format("Roofline of {}", machine.name),
              .x = {.title = "arithmetic intensity, operations per byte", .logarithmic = true},
              .y = {.title = "operations a second", .logarithmic = true},
              .series = {}};
  ChartSeries roof{.name = "limit", .points = {}};
  for (const double x : {0.1, ridge, std::max(1e4, ridge * 10)})
    roof.points.emplace_back(x, std::min(peak, machine.read * x));
  chart.series.push_back(std::move(roof));
  for (const PlannedPhase& phase : plan.phases) {
    ChartSeries dots{.name = phase.name, .style = ChartSeries::Style::Dots, .points = {}};
    for (const PlannedOperation& one : phase.operations) {
      if (one.operations <= 0) continue;
      dots.points.emplace_back(one.intensity(), one.operations / one.seconds);
      dots.notes.push_back(fmt::format("{}: {}", one.name, time_text(one.seconds)));
    }
    chart.series.push_back(std::move(dots));
  }
  return chart_svg(chart);
}

template <class Value>
std::string over_batches(const Plan& plan, const std::string& title, const std::string& unit, Value value) {
  Chart chart{.title = title,
              .x = {.title = "batch", .logarithmic = true},
              .y = {.title = unit, .logarithmic = true},
              .series = {}};
  for (const int context : plan.options.contexts) {
    ChartSeries line{.name = fmt::format("context {}", context), .points = {}};
    for (double batch = 1; batch <= std::max(64, plan.options.batches.back()); batch *= 2)
      line.points.emplace_back(
          batch, value(batch, plan.model.seconds({static_cast<int>(batch), 1, double(context)})));
    chart.series.push_back(std::move(line));
  }
  return chart_svg(chart);
}

std::string prompt_figure(const Plan& plan) {
  Chart chart{.title = "Time to first token",
              .x = {.title = "tokens of the prompt", .logarithmic = true},
              .y = {.title = "seconds", .logarithmic = true},
              .series = {{.name = "one prompt on an idle machine", .points = {}}}};
  const int step = plan_step_tokens(plan.options, plan.model);
  for (double tokens = 16; tokens <= plan.model.sheet().spec.context && tokens <= 131072; tokens *= 2)
    chart.series[0].points.emplace_back(tokens, plan.model.prompt_seconds(tokens, 0, step));
  return chart_svg(chart);
}

std::string share_figure(const Plan& plan) {
  Lanes lanes{
      .title = "Where a step's time goes", .x_title = "share of the step, %", .kinds = {}, .bars = {}};
  std::map<std::string, int> kinds;
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    double at = 0;
    for (const PlannedOperation& one : plan.phases[i].operations) {
      const auto [found, fresh] = kinds.try_emplace(one.name, static_cast<int>(kinds.size()));
      if (fresh) lanes.kinds.push_back(one.name);
      const double part = 100 * one.seconds / plan.phases[i].seconds;
      lanes.bars.push_back({static_cast<int>(i), at, at + part, found->second,
                            fmt::format("{}, {}: {:.1f} %", plan.phases[i].name, one.name, part)});
      at += part;
    }
    lanes.names.push_back(plan.phases[i].name);
  }
  lanes.end = 100;
  return lanes_svg(lanes);
}

}  // namespace

json::object cell_json(const PlanCell& cell) {
  return {{"batch", cell.batch},
          {"context", cell.context},
          {"fits", cell.fits},
          {"ttft_s", cell.ttft},
          {"tpot_s", cell.tpot},
          {"floor_s", cell.floor},
          {"tokens_per_s", cell.throughput()},
          {"bound", bound_text(cell.bound)},
          {"cost_per_million", cell.cost}};
}

json::object plan_json(const Plan& plan) {
  const ModelSheet& sheet = plan.model.sheet();
  json::array rooms, cells, phases, changes;
  for (const ContextRoom& room : plan.rooms) {
    json::object one{{"context", room.context},
                     {"kv_bytes", room.kv_bytes},
                     {"largest_batch", room.largest_batch},
                     {"compute_bound_from", nullptr}};
    if (room.compute_bound_from) one["compute_bound_from"] = *room.compute_bound_from;
    rooms.push_back(std::move(one));
  }
  for (const PlanCell& cell : plan.cells) cells.push_back(cell_json(cell));
  for (const PlannedPhase& phase : plan.phases) phases.push_back(phase_json(phase));
  for (const PlanChange& change : plan.changes)
    changes.push_back(json::object{{"change", change.name},
                                   {"fits", change.fits},
                                   {"ttft_s", change.ttft},
                                   {"tpot_s", change.tpot},
                                   {"tokens_per_s", change.throughput},
                                   {"cost_per_million", change.cost}});
  return {{"model", sheet.name},
          {"family", sheet.spec.family},
          {"parameters", models::parameter_count(sheet.spec)},
          {"active_parameters", models::active_parameter_count(sheet.spec)},
          {"weight_bytes", sheet.stored_bytes},
          {"weight_type", name(sheet.weights)},
          {"kv_type", name(sheet.kv_type)},
          {"kv_bytes_per_token", sheet.kv_bytes(1)},
          {"machine", to_json(plan.model.machine())},
          {"tensor_parallel", plan.model.cut().tensor},
          {"pipeline_stages", plan.model.cut().stages},
          {"device_weight_bytes", plan.model.device_weights()},
          {"device_kv_bytes_per_token", plan.model.device_kv(1)},
          {"step_tokens", plan_step_tokens(plan.options, plan.model)},
          {"price_per_hour", plan.price},
          {"fitting_tokens", plan.fitting_tokens},
          {"weights_over_link_s", plan.weights_over_link},
          {"kv_over_link_s", plan.kv_over_link},
          {"kv_again_s", plan.kv_again},
          {"contexts", std::move(rooms)},
          {"cells", std::move(cells)},
          {"phases", std::move(phases)},
          {"changes", std::move(changes)}};
}

std::string plan_html(const Plan& plan) {
  const ModelSheet& sheet = plan.model.sheet();
  HtmlPage page(fmt::format("{} on {}", sheet.name, plan.model.machine_text()),
                fmt::format("weights {} in {}, KV {} a token in {}", size_text(sheet.stored_bytes),
                            name(sheet.weights), size_text(sheet.kv_bytes(1)), name(sheet.kv_type)));
  std::istringstream words(plan_words(plan));
  for (std::string line; std::getline(words, line);) page.paragraph(line);
  page.figures(
      {roofline_figure(plan), share_figure(plan),
       over_batches(plan, "Tokens a second", "tokens a second",
                    [](double batch, double step) { return batch / step; }),
       over_batches(plan, "Time per output token", "seconds", [](double, double step) { return step; }),
       prompt_figure(plan)});
  page.heading("Predictions");
  std::vector<std::vector<std::string>> rows;
  for (const PlanCell& cell : plan.cells)
    rows.push_back({std::to_string(cell.batch), std::to_string(cell.context), cell.fits ? "yes" : "no",
                    time_text(cell.ttft), time_text(cell.tpot), count_text(cell.throughput()),
                    bound_text(cell.bound), cell.cost > 0 ? fmt::format("{:.3f}", cell.cost) : "-"});
  page.table({"batch", "context", "fits", "TTFT", "TPOT", "tokens/s", "bound", "cost of a million"}, rows);
  page.heading(
      fmt::format("What would change, batch {} at {} tokens", plan.reference.batch, plan.reference.context));
  rows.clear();
  for (const PlanChange& change : plan.changes)
    rows.push_back({change.name, time_text(change.ttft), time_text(change.tpot),
                    count_text(change.throughput), change.cost > 0 ? fmt::format("{:.3f}", change.cost) : "-",
                    change.fits ? "" : "does not fit"});
  page.table({"change", "TTFT", "TPOT", "tokens/s", "cost of a million", ""}, rows);
  page.heading("In numbers");
  page.preformatted(plan_text(plan));
  return page.text();
}

}  // namespace sluice::lab
