// Schemes side by side: a table, and a page with what each computed when.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lab/html/chart.h"
#include "lab/html/page.h"
#include "lab/html/picture.h"
#include "lab/schemes.h"

namespace sluice::lab {

namespace {

constexpr double kShownSeconds = 3;  // of each scheme's lanes
constexpr int kShownLanes = 48;
constexpr const char* kSchemeColumns[] = {"scheme",      "KV",         "tokens/s",   "batch x longest / s",
                                          "s per token", "time s",     "TTFT p50 s", "p99",
                                          "TPOT p50 ms", "TBT p50 ms", "p99",        "padding",
                                          "KV use",      "batch",      "preempted"};

std::vector<std::string> scheme_cells(const SchemeResult& r) {
  return {r.name,
          r.policy,
          fmt::format("{:.1f}", r.tokens_per_second()),
          fmt::format("{:.1f}", r.batch_throughput()),
          fmt::format("{:.3f}", r.latency_per_token()),
          fmt::format("{:.1f}", r.seconds),
          fmt::format("{:.2f}", r.ttft_p50),
          fmt::format("{:.2f}", r.ttft_p99),
          fmt::format("{:.0f}", r.tpot_p50 * 1e3),
          fmt::format("{:.0f}", r.tbt_p50 * 1e3),
          fmt::format("{:.0f}", r.tbt_p99 * 1e3),
          fmt::format("{:.0f} %", r.padding * 100),
          fmt::format("{:.0f} %", r.kv_share * 100),
          fmt::format("{:.1f}", r.batch),
          std::to_string(r.preempted)};
}

std::string scheme_title(const SchemeResult& r) {
  return r.policy == "-" ? r.name : fmt::format("{}, {}", r.name, r.policy);
}

// A lane for each request, a bar for each run of steps that had work of it.
Lanes scheme_lanes(const SchemeResult& r) {
  Lanes lanes{.title = scheme_title(r),
              .x_title = fmt::format("seconds; {:.0f} tokens/s in all", r.tokens_per_second()),
              .kinds = {"prefill", "decode"},
              .bars = {},
              .end = kShownSeconds};
  std::map<request::RequestId, int> rows;
  std::map<int, size_t> last_bar;  // of each lane
  for (const auto& step : r.steps) {
    const double begin = seconds_between(r.start, step->begin);
    if (begin > kShownSeconds) break;
    for (const engine::TracedWork& work : step->work) {
      const int lane = rows.try_emplace(work.request, static_cast<int>(rows.size())).first->second;
      const int kind = work.kind == engine::WorkKind::Decode ? 1 : 0;
      if (lane >= kShownLanes) continue;
      const auto last = last_bar.find(lane);
      constexpr double kPause = 2e-3;  // between steps that count as one
      if (last != last_bar.end() && lanes.bars[last->second].kind == kind &&
          begin - lanes.bars[last->second].end < kPause) {
        lanes.bars[last->second].end = begin + step->seconds;
        continue;
      }
      last_bar[lane] = lanes.bars.size();
      lanes.bars.push_back({lane, begin, begin + step->seconds, kind});
    }
  }
  return lanes;
}

std::string occupancy(const std::vector<SchemeResult>& results) {
  Chart chart{
      .title = "KV blocks in use", .x = {.title = "seconds"}, .y = {.title = "% of blocks", .high = 100}};
  for (const SchemeResult& r : results) {
    if (r.policy != "on-demand" || chart.series.size() >= 8) continue;
    ChartSeries line{.name = r.name, .points = {}};
    for (const auto& [at, share] : r.kv_over_time) line.points.emplace_back(at, share * 100);
    chart.series.push_back(std::move(line));
  }
  return chart_svg(chart);
}

template <class Value>
std::string bars(const std::vector<SchemeResult>& results, const std::string& title, const std::string& unit,
                 Value value) {
  Lanes lanes{.title = title, .x_title = unit, .kinds = {}, .bars = {}};
  for (size_t i = 0; i < results.size(); ++i) {
    lanes.bars.push_back({static_cast<int>(i), 0, value(results[i]), 0});
    lanes.names.push_back(fmt::format("{}: {:.1f}", scheme_title(results[i]), value(results[i])));
  }
  return lanes_svg(lanes);
}

}  // namespace

std::string schemes_header() {
  std::string rule = "|---|---|";
  for (size_t i = 2; i < std::size(kSchemeColumns); ++i) rule += "---:|";
  return fmt::format("| {} |\n{}\n", fmt::join(kSchemeColumns, " | "), rule);
}

std::string schemes_row(const SchemeResult& result) {
  return fmt::format("| {} |\n", fmt::join(scheme_cells(result), " | "));
}

json::array schemes_json(const std::vector<SchemeResult>& results) {
  json::array out;
  for (const SchemeResult& r : results)
    out.push_back(json::object{{"scheme", r.name},
                               {"kv_policy", r.policy},
                               {"requests", r.requests},
                               {"duration_s", r.seconds},
                               {"generated_tokens", r.generated},
                               {"tokens_per_s", r.tokens_per_second()},
                               {"batch_throughput", r.batch_throughput()},
                               {"latency_per_token_s", r.latency_per_token()},
                               {"ttft_p50_s", r.ttft_p50},
                               {"ttft_p99_s", r.ttft_p99},
                               {"tpot_p50_s", r.tpot_p50},
                               {"tbt_p50_s", r.tbt_p50},
                               {"tbt_p99_s", r.tbt_p99},
                               {"padding_share", r.padding},
                               {"kv_share", r.kv_share},
                               {"batch_size", r.batch},
                               {"cached_tokens", r.cached},
                               {"preempted", r.preempted}});
  return out;
}

std::string schemes_svg(const std::vector<SchemeResult>& results) {
  std::vector<Lanes> parts;
  for (const std::string_view wanted : {"static padded", "iteration padded", "continuous mixed"}) {
    const auto found = std::find_if(results.begin(), results.end(), [&](const SchemeResult& r) {
      return r.name == wanted && r.policy == "on-demand";
    });
    if (found != results.end()) parts.push_back(scheme_lanes(*found));
  }
  return lanes_picture("A lane for each request", parts);
}

std::string schemes_html(const std::vector<SchemeResult>& results, const std::string& workload) {
  HtmlPage page("Scheduling schemes side by side", workload);
  std::vector<std::vector<std::string>> rows;
  rows.reserve(results.size());
  for (const SchemeResult& r : results) rows.push_back(scheme_cells(r));
  page.table({std::begin(kSchemeColumns), std::end(kSchemeColumns)}, rows);
  page.heading("In pictures");
  page.figures({bars(results, "Throughput", "tokens a second",
                     [](const SchemeResult& r) { return r.tokens_per_second(); }),
                bars(results, "Computed for nothing: padding", "% of computed tokens",
                     [](const SchemeResult& r) { return r.padding * 100; }),
                occupancy(results)});
  page.heading("The first seconds of each");
  std::vector<std::string> lanes;
  lanes.reserve(results.size());
  for (const SchemeResult& r : results) lanes.push_back(lanes_svg(scheme_lanes(r)));
  page.figures(lanes);
  return page.text();
}

}  // namespace sluice::lab
