#include "server/observe/live.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"

namespace sluice::server {

namespace {

constexpr double kBusyInterval = 0.2, kIdleInterval = 2.0;
constexpr size_t kMostRequests = 256, kMostRuns = 4096, kMostSteps = 256;

std::string_view phase_name(sched::Phase phase) {
  switch (phase) {
    case sched::Phase::Waiting:
      return "waiting";
    case sched::Phase::Running:
      return "running";
    case sched::Phase::Swapped:
      return "swapped";
    case sched::Phase::Dropped:
      break;
  }
  return "preempted";
}

json::object request_json(const sched::RequestView& view, double received) {
  return {{"id", view.id.value},
          {"phase", phase_name(view.phase)},
          {"received", received},
          {"prompt", view.prompt_tokens},
          {"cached", view.cached},
          {"computed", view.lanes.empty() ? 0 : view.lanes.front().computed},
          {"generated", view.generated},
          {"choices", view.lanes.size()},
          {"preemptions", view.preemptions}};
}

json::object group_json(const engine::Snapshot::Group& group) {
  size_t stride = 1;
  json::array runs = owner_runs(group, stride);
  while (runs.size() > kMostRuns) runs = owner_runs(group, stride *= 2);
  json::object out{{"total", group.usage.blocks},   {"used", group.usage.used},
                   {"cached", group.usage.cached},  {"window", group.window},
                   {"host", group.usage.host_used}, {"disk", group.usage.disk_used},
                   {"owners", std::move(runs)}};
  if (stride > 1) out["stride"] = stride;
  return out;
}

json::object step_json(const engine::TracedStep& step, double begin) {
  json::array work, preempted;
  for (const engine::TracedWork& item : step.work) {
    json::array one{item.request.value, item.begin, item.end, static_cast<int>(item.kind)};
    if (item.drafted > 0) {
      one.push_back(item.drafted);
      one.push_back(item.accepted);
    }
    work.push_back(std::move(one));
  }
  json::object out{{"n", step.number},
                   {"t", begin},
                   {"ms", step.seconds * 1e3},
                   {"work", std::move(work)},
                   {"padding", step.padding}};
  for (const engine::RequestId id : step.preempted) preempted.push_back(id.value);
  if (!preempted.empty()) out["preempted"] = std::move(preempted);
  return out;
}

json::object counters_json(const engine::Metrics& metrics) {
  json::object out;
  for (const engine::Metrics::NamedCounter& entry : metrics.counters())
    out[entry.name] = entry.counter->value();
  return out;
}

json::object histograms_json(const engine::Metrics& metrics) {
  json::object out;
  for (const engine::Metrics::NamedHistogram& entry : metrics.histograms()) {
    const engine::Histogram& histogram = *entry.histogram;
    out[entry.name] = {{"count", histogram.count()},
                       {"sum", histogram.sum()},
                       {"p50", histogram.quantile(0.50)},
                       {"p90", histogram.quantile(0.90)},
                       {"p99", histogram.quantile(0.99)}};
  }
  return out;
}

void append_event(std::string& out, std::string_view name, const json::object& data) {
  out += fmt::format("event: {}\ndata: {}\n\n", name, write_json(data));
}

}  // namespace

json::array owner_runs(const engine::Snapshot::Group& group, size_t stride) {
  using enum engine::Snapshot::Block::State;
  json::array runs;
  size_t length = 0;
  for (size_t i = 0; i < group.blocks.size(); i += stride) {
    ++length;
    const engine::Snapshot::Block& block = group.blocks[i];
    const bool last = i + stride >= group.blocks.size();
    if (!last && group.blocks[i + stride] == block) continue;
    const auto owner = block.state == Held   ? static_cast<int64_t>(block.owner.value)
                       : block.state == Kept ? int64_t{-1}
                                             : int64_t{0};
    runs.push_back(json::array{length, owner, block.shared ? 1 : 0});
    length = 0;
  }
  return runs;
}

double LiveView::time_of(TimePoint moment) const {
  return seconds_between(state_.start(), moment);
}

std::string LiveView::hello() {
  return begin(state_.models());
}

// The numbers that events name models by are those of this set from now on.
std::string LiveView::begin(const std::shared_ptr<const ModelSet>& set) {
  seen_ = set;
  cursors_.assign(set->backends.size(), {});
  json::array models;
  for (const Backend& backend : set->backends)
    models.push_back({{"id", backend.model.id},
                      {"context", backend.model.context},
                      {"device", backend.device},
                      {"block_size", backend.block_size},
                      {"scheme", backend.scheme},
                      {"layout", backend.layout},
                      {"max_sequences", backend.max_sequences},
                      {"max_tokens", backend.max_step_tokens}});
  std::string out;
  append_event(out, "hello",
               {{"version", build_info().version},
                {"t", state_.uptime()},
                {"interval", kBusyInterval},
                {"models", std::move(models)}});
  return out;
}

json::object LiveView::model_state(const Backend& backend, size_t index) {
  engine::Engine& engine = *backend.engine;
  const engine::Metrics& metrics = engine.metrics();
  json::array requests, blocks, steps, ended;
  uint64_t waiting = metrics.waiting.value();
  if (const std::shared_ptr<const engine::Snapshot> snapshot = engine.snapshot()) {
    for (const sched::RequestView& view : snapshot->requests)
      if (requests.size() < kMostRequests) requests.push_back(request_json(view, time_of(view.arrival)));
    for (const engine::Snapshot::Group& group : snapshot->groups) blocks.push_back(group_json(group));
    waiting = snapshot->waiting;
  }
  const engine::Trace::Page page = engine.trace(cursors_[index]);
  const size_t first = page.steps.size() - std::min(page.steps.size(), kMostSteps);
  for (size_t i = first; i < page.steps.size(); ++i)
    steps.push_back(step_json(*page.steps[i], time_of(page.steps[i]->begin)));
  for (const engine::TracedEnd& end : page.ends)
    ended.push_back({{"id", end.request.value}, {"t", time_of(end.at)}, {"reason", name(end.reason)}});
  json::object out{{"model", index},
                   {"t", state_.uptime()},
                   {"step", metrics.steps.value()},
                   {"requests", std::move(requests)},
                   {"waiting", waiting},
                   {"blocks", std::move(blocks)},
                   {"steps", std::move(steps)},
                   {"ended", std::move(ended)},
                   {"counters", counters_json(metrics)},
                   {"histograms", histograms_json(metrics)}};
  if (const std::optional<GpuStats> gpu = backend.gpu ? backend.gpu() : std::nullopt)
    out["gpu"] = {{"utilization", gpu->utilization},
                  {"memory_used", gpu->memory_used},
                  {"memory_total", gpu->memory_total},
                  {"power_w", gpu->power_w}};
  return out;
}

std::string LiveView::next() {
  const std::shared_ptr<const ModelSet> set = state_.models();
  std::string out;
  if (seen_.lock() != set) out = begin(set);
  bool busy = false;
  for (size_t i = 0; i < set->backends.size(); ++i) {
    append_event(out, "state", model_state(set->backends[i], i));
    busy |= set->backends[i].engine->health().busy;
  }
  interval_ = busy ? kBusyInterval : kIdleInterval;
  return out;
}

}  // namespace sluice::server
