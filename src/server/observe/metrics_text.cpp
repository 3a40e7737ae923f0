#include "server/observe/metrics_text.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <tuple>

#include "base/log.h"
#include "base/version.h"
#include "server/observe/process_stats.h"
#include "server/observe/prometheus.h"

namespace sluice::server {

namespace {

using engine::Counter;
using engine::Histogram;
using engine::Metrics;

constexpr std::string_view kCounter = "counter", kGauge = "gauge", kHistogram = "histogram";

// Engines with the label of their model.
struct Row {
  std::string_view model;
  const Metrics* metrics;
};

bool is_duration(std::string_view name) {
  return name.ends_with("_seconds") || name.ends_with("_share");
}

void add_engine(PrometheusText& text, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  const std::vector<size_t> durations = duration_cuts(), counts = count_cuts();
  const std::vector<Metrics::NamedCounter> names = rows[0].metrics->counters();
  for (size_t i = 0; i < names.size(); ++i) {
    text.family(fmt::format("sluice_{}{}", names[i].name, names[i].gauge ? "" : "_total"),
                names[i].gauge ? kGauge : kCounter, names[i].help);
    for (const Row& row : rows)
      text.value({{"model", row.model}}, static_cast<double>(row.metrics->counters()[i].counter->value()));
  }
  const std::vector<Metrics::NamedHistogram> histograms = rows[0].metrics->histograms();
  for (size_t i = 0; i < histograms.size(); ++i) {
    text.family(fmt::format("sluice_{}", histograms[i].name), kHistogram, histograms[i].help);
    for (const Row& row : rows)
      text.histogram({{"model", row.model}}, *row.metrics->histograms()[i].histogram,
                     is_duration(histograms[i].name) ? durations : counts);
  }
}

// Drafts by whose they were: those that were verified, those that were right and saved a pass each, and the passes that
// verified any.
void add_proposers(PrometheusText& text, const std::vector<Row>& rows) {
  using Proposer = Metrics::Proposer;
  const auto numbers = std::to_array<std::tuple<std::string_view, std::string_view, Counter Proposer::*>>({
      {"proposed_drafts", "guessed tokens that steps verified, by proposer", &Proposer::drafted},
      {"saved_passes", "of these, those that were right, by proposer", &Proposer::accepted},
      {"verifying_passes", "passes of a sequence that verified drafts, by proposer", &Proposer::works},
  });
  for (const auto& [name, help, member] : numbers) {
    text.family(fmt::format("sluice_{}_total", name), kCounter, help);
    for (const Row& row : rows) {
      for (size_t i = static_cast<size_t>(request::Speculation::Ngram); i < request::kSpeculations; ++i)
        text.value({{"model", row.model}, {"proposer", request::kSpeculationNames[i]}},
                   static_cast<double>((row.metrics->proposers[i].*member).value()));
    }
  }
}

// vLLM's names, with its label, so that boards made for it work.
void add_vllm(PrometheusText& text, const std::vector<Row>& rows) {
  using Read = double (*)(const Metrics&);
  const auto share = [](const Metrics& m) {
    return static_cast<double>(m.kv_used.value()) /
           static_cast<double>(std::max<uint64_t>(1, m.kv_blocks.value()));
  };
  const auto numbers = std::to_array<std::tuple<std::string_view, std::string_view, Read>>({
      {"num_requests_running", kGauge, [](const Metrics& m) { return double(m.running.value()); }},
      {"num_requests_waiting", kGauge, [](const Metrics& m) { return double(m.waiting.value()); }},
      {"kv_cache_usage_perc", kGauge, share},
      {"gpu_cache_usage_perc", kGauge, share},
      {"prefix_cache_queries_total", kCounter,
       [](const Metrics& m) { return double(m.prompt_tokens.value()); }},
      {"prefix_cache_hits_total", kCounter, [](const Metrics& m) { return double(m.cached_tokens.value()); }},
      {"num_preemptions_total", kCounter,
       [](const Metrics& m) { return double(m.preempted_dropped.value() + m.preempted_swapped.value()); }},
      {"prompt_tokens_total", kCounter, [](const Metrics& m) { return double(m.prompt_tokens.value()); }},
      {"generation_tokens_total", kCounter,
       [](const Metrics& m) { return double(m.generated_tokens.value()); }},
      {"spec_decode_num_draft_tokens_total", kCounter,
       [](const Metrics& m) { return double(m.drafted_tokens.value()); }},
      {"spec_decode_num_accepted_tokens_total", kCounter,
       [](const Metrics& m) { return double(m.accepted_drafts.value()); }},
      {"corrupted_requests_total", kCounter, [](const Metrics& m) { return double(m.corrupted.value()); }},
  });
  for (const auto& [name, kind, read] : numbers) {
    text.family(fmt::format("vllm:{}", name), kind, "under vLLM's name");
    for (const Row& row : rows) text.value({{"model_name", row.model}}, read(*row.metrics));
  }
  text.family("vllm:request_success_total", kCounter, "requests by the reason of their end");
  for (const Row& row : rows) {
    text.value({{"model_name", row.model}, {"finished_reason", "stop"}},
               double(row.metrics->stopped.value()));
    text.value({{"model_name", row.model}, {"finished_reason", "length"}},
               double(row.metrics->reached_length.value()));
    text.value({{"model_name", row.model}, {"finished_reason", "abort"}},
               double(row.metrics->cancelled.value()));
  }
  const auto histograms = std::to_array<std::tuple<std::string_view, Histogram Metrics::*>>({
      {"time_to_first_token_seconds", &Metrics::ttft},
      {"inter_token_latency_seconds", &Metrics::tbt},
      {"time_per_output_token_seconds", &Metrics::tbt},
      {"request_time_per_output_token_seconds", &Metrics::tpot},
      {"e2e_request_latency_seconds", &Metrics::latency},
      {"request_queue_time_seconds", &Metrics::queue},
      {"request_prefill_time_seconds", &Metrics::prefill},
      {"request_decode_time_seconds", &Metrics::decode},
      {"request_prompt_tokens", &Metrics::prompt_length},
      {"request_generation_tokens", &Metrics::output_length},
      {"iteration_tokens_total", &Metrics::step_tokens},
  });
  for (const auto& [name, member] : histograms) {
    text.family(fmt::format("vllm:{}", name), kHistogram, "under vLLM's name");
    for (const Row& row : rows)
      text.histogram({{"model_name", row.model}}, row.metrics->*member,
                     name.ends_with("_seconds") ? duration_cuts() : count_cuts());
  }
}

void add_http(PrometheusText& text, ServerContext& state) {
  HttpMetrics& http = state.metrics();
  const std::vector<Route>& routes = state.router().routes();
  text.family("sluice_http_requests_total", kCounter, "answers by route and class of status");
  constexpr std::array<std::string_view, 6> kClasses = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
  for (size_t route = 0; route <= routes.size(); ++route) {
    const std::string_view path = route < routes.size() ? std::string_view(routes[route].path) : "unmatched";
    const std::string_view method = route < routes.size() ? routes[route].method : "any";
    for (size_t kind = 0; kind < kClasses.size(); ++kind)
      if (http.answers(route, kind) > 0)
        text.value({{"method", method}, {"route", path}, {"status", kClasses[kind]}},
                   static_cast<double>(http.answers(route, kind)));
  }
  text.family("sluice_http_request_seconds", kHistogram, "head complete to last byte handed to the system");
  text.histogram({}, http.seconds(), duration_cuts());
  text.family("sluice_http_trouble_total", kCounter, "requests and connections sent away or ended early");
  for (size_t i = 0; i < kTroubleNames.size(); ++i)
    text.value({{"reason", kTroubleNames[i]}},
               static_cast<double>(http.troubles(static_cast<RejectReason>(i))));
  text.family("sluice_http_connections_accepted_total", kCounter, "connections accepted");
  text.value({}, static_cast<double>(http.connections_accepted.value()));
  text.family("sluice_prefills_total", kCounter, "prompts between servers with roles");
  text.value({{"way", "fetched"}}, static_cast<double>(http.prefills_fetched.value()));
  text.value({{"way", "failed"}}, static_cast<double>(http.prefills_failed.value()));
  text.value({{"way", "served"}}, static_cast<double>(http.prefills_served.value()));
  const auto gauges = std::to_array<std::tuple<std::string_view, int64_t, std::string_view>>({
      {"sluice_http_connections", http.connections, "open connections"},
      {"sluice_http_requests", http.requests, "requests being served"},
      {"sluice_http_live_views", http.live_views, "open live views"},
      {"sluice_http_body_bytes", http.body_bytes, "bytes of bodies held"},
      {"sluice_http_answer_bytes", http.answer_bytes, "bytes of events held for answers"},
  });
  for (const auto& [name, value, help] : gauges) {
    text.family(name, kGauge, help);
    text.value({}, static_cast<double>(value));
  }
}

void add_process(PrometheusText& text, const ServerContext& state) {
  const BuildInfo& info = build_info();
  text.family("sluice_build_info", kGauge, "what this program was made from");
  text.value({{"version", info.version}, {"commit", info.commit}}, 1);
  text.family("sluice_ready", kGauge, "1: the server takes requests");
  text.value({}, state.stage() == Stage::Serving && state.health().healthy ? 1 : 0);
  text.family("sluice_log_dropped_total", kCounter, "lines of the log that nobody read in time");
  text.value({}, static_cast<double>(dropped_log_messages()));
  text.family("sluice_uptime_seconds", kGauge, "since the start of the server");
  text.value({}, state.uptime());
  const ProcessStats stats = process_stats();
  const auto rows = std::to_array<std::tuple<std::string_view, std::string_view, double, std::string_view>>({
      {"process_cpu_seconds_total", kCounter, stats.cpu_seconds, "processor time, user and system"},
      {"process_resident_memory_bytes", kGauge, stats.resident_bytes, "memory in use"},
      {"process_virtual_memory_bytes", kGauge, stats.virtual_bytes, "address space in use"},
      {"process_open_fds", kGauge, stats.open_files, "open files and sockets"},
      {"process_max_fds", kGauge, stats.most_files, "how many there may be"},
      {"process_threads", kGauge, stats.threads, "threads"},
      {"process_start_time_seconds", kGauge, stats.start_time, "start, in seconds since 1970"},
  });
  for (const auto& [name, kind, value, help] : rows) {
    text.family(name, kind, help);
    text.value({}, value);
  }
}

// Of the GPU that the first model with one runs on.
void add_gpu(PrometheusText& text, const ModelSet& set) {
  std::optional<GpuStats> stats;
  for (const Backend& backend : set.backends)
    if (!stats && backend.gpu) stats = backend.gpu();
  if (!stats) return;
  const auto rows = std::to_array<std::tuple<std::string_view, double, std::string_view>>({
      {"sluice_gpu_utilization", stats->utilization, "share of the time in which the GPU ran something"},
      {"sluice_gpu_memory_used_bytes", static_cast<double>(stats->memory_used),
       "the GPU's memory in use, by anybody"},
      {"sluice_gpu_memory_bytes", static_cast<double>(stats->memory_total), "the GPU's memory"},
      {"sluice_gpu_power_watts", stats->power_w, "what the GPU draws"},
      {"sluice_gpu_temperature_celsius", stats->temperature_c, "of the GPU's chip"},
  });
  for (const auto& [name, value, help] : rows) {
    text.family(name, kGauge, help);
    text.value({}, value);
  }
}

std::vector<size_t> cuts(size_t first, size_t step, double most) {
  std::vector<size_t> out;
  for (size_t bucket = first; bucket < Histogram::kBuckets && Histogram::upper(bucket) <= most;
       bucket += step)
    out.push_back(bucket);
  return out;
}

}  // namespace

std::vector<size_t> duration_cuts() {
  return cuts(0, Histogram::kPerOctave / 2, 400);
}

std::vector<size_t> count_cuts() {
  // The first bucket that holds the number 1.
  size_t one = 0;
  while (Histogram::upper(one) <= 1) ++one;
  return cuts(one, Histogram::kPerOctave, 2.5e6);
}

std::string metrics_text(ServerContext& state) {
  PrometheusText text;
  std::vector<Row> rows;
  const std::shared_ptr<const ModelSet> set = state.models();
  for (const Backend& backend : set->backends) rows.push_back({backend.model.id, &backend.engine->metrics()});
  add_engine(text, rows);
  add_proposers(text, rows);
  if (state.options().metrics_names == MetricsNames::Vllm) add_vllm(text, rows);
  add_http(text, state);
  add_process(text, state);
  add_gpu(text, *set);
  return text.take();
}

}  // namespace sluice::server
