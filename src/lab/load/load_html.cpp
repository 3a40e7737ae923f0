// Reports of loads as one page: distributions, rates over time, and a lane for each request.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/html/chart.h"
#include "lab/html/page.h"
#include "lab/load/load_report.h"

namespace sluice::lab {

namespace {

constexpr size_t kLaneRequests = 200;  // in the picture of lanes
constexpr int kTimeBins = 60;

// "64", "0.494", "30.6", "31010": no fractions that nobody reads.
std::string figure_text(double value) {
  if (value == std::floor(value) || value >= 1000) return fmt::format("{:.0f}", value);
  return value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

// One request as a report has it.
struct ReportedRequest {
  double start = 0, first = 0, end = 0;  // seconds
  std::vector<double> arrivals;          // the first token's among them
};

double number_of(const json::value& value) {
  return value.is_number() ? value.to_number<double>() : 0;
}

const json::array* list_at(const json::object& report, std::string_view key) {
  const json::value* value = report.if_contains(key);
  return value != nullptr && value->is_array() ? &value->as_array() : nullptr;
}

std::string reported_text(const json::object& report, std::string_view key) {
  const json::value* value = report.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

std::vector<ReportedRequest> requests_of(const json::object& report) {
  const json::array *starts = list_at(report, "start_times"), *ttfts = list_at(report, "ttfts"),
                    *itls = list_at(report, "itls");
  std::vector<ReportedRequest> out;
  if (starts == nullptr || ttfts == nullptr || itls == nullptr) return out;
  const size_t count = std::min({starts->size(), ttfts->size(), itls->size()});
  double origin = count > 0 ? number_of((*starts)[0]) : 0;
  for (size_t i = 0; i < count; ++i) origin = std::min(origin, number_of((*starts)[i]));
  for (size_t i = 0; i < count; ++i) {
    ReportedRequest one;
    one.start = number_of((*starts)[i]) - origin;
    one.first = one.end = one.start + number_of((*ttfts)[i]);
    one.arrivals.push_back(one.first);
    if ((*itls)[i].is_array())
      for (const json::value& gap : (*itls)[i].as_array()) one.arrivals.push_back(one.end += number_of(gap));
    out.push_back(std::move(one));
  }
  return out;
}

// The share of values that are no larger.
ChartSeries distribution(std::string name, std::vector<double> values) {
  ChartSeries line{.name = std::move(name), .points = {}};
  std::sort(values.begin(), values.end());
  const size_t stride = std::max<size_t>(1, values.size() / 200);
  for (size_t i = 0; i < values.size(); i += stride)
    line.points.emplace_back(values[i] * 1e3, 100 * double(i + 1) / double(values.size()));
  if (!values.empty()) line.points.emplace_back(values.back() * 1e3, 100);
  return line;
}

struct LoadSeries {
  ChartSeries ttft, gaps, tokens, running;
};

LoadSeries series_of(const std::string& name, const std::vector<ReportedRequest>& requests) {
  LoadSeries out;
  std::vector<double> ttfts, gaps;
  double end = 0;
  for (const ReportedRequest& one : requests) {
    ttfts.push_back(one.first - one.start);
    for (size_t i = 1; i < one.arrivals.size(); ++i) gaps.push_back(one.arrivals[i] - one.arrivals[i - 1]);
    end = std::max(end, one.end);
  }
  out.ttft = distribution(name, std::move(ttfts));
  out.gaps = distribution(name, std::move(gaps));
  out.tokens.name = out.running.name = name;
  const double bin = std::max(end / kTimeBins, 1e-6);
  std::vector<double> tokens(kTimeBins + 1), running(kTimeBins + 1);
  for (const ReportedRequest& one : requests) {
    for (const double at : one.arrivals)
      tokens[static_cast<size_t>(std::min(double(kTimeBins), at / bin))] += 1;
    for (size_t i = 0; i < kTimeBins; ++i)
      if (const double middle = (double(i) + 0.5) * bin; one.start <= middle && middle < one.end)
        ++running[i];
  }
  for (size_t i = 0; i < kTimeBins; ++i) {
    out.tokens.points.emplace_back((double(i) + 0.5) * bin, tokens[i] / bin);
    out.running.points.emplace_back((double(i) + 0.5) * bin, running[i]);
  }
  return out;
}

std::string request_lanes(const std::string& name, const std::vector<ReportedRequest>& requests) {
  Lanes lanes{.title = fmt::format("{}: a lane for each request", name),
              .x_title = "seconds",
              .kinds = {"waits for its first token", "tokens come"},
              .bars = {}};
  for (size_t i = 0; i < std::min(requests.size(), kLaneRequests); ++i) {
    const ReportedRequest& one = requests[i];
    const int lane = static_cast<int>(i);
    lanes.bars.push_back(
        {lane, one.start, one.first, 0, fmt::format("request {}: {:.3f} s", i, one.first - one.start)});
    lanes.bars.push_back(
        {lane, one.first, one.end, 1, fmt::format("request {}: {} pieces", i, one.arrivals.size())});
  }
  return lanes_svg(lanes);
}

void add_summary(HtmlPage& page, const std::vector<json::object>& reports,
                 const std::vector<std::string>& names) {
  struct Row {
    const char *label, *key;
  };
  constexpr Row kRows[] = {{"completed", "completed"},
                           {"failed", "failed"},
                           {"duration, s", "duration"},
                           {"requests/s", "request_throughput"},
                           {"good requests/s", "request_goodput"},
                           {"output tokens/s", "output_throughput"},
                           {"all tokens/s", "total_token_throughput"}};
  std::vector<std::string> header{""};
  header.insert(header.end(), names.begin(), names.end());
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& label, const std::string& key) {
    std::vector<std::string> row{label};
    for (const json::object& report : reports) {
      const json::value* value = report.if_contains(key);
      row.push_back(value != nullptr && value->is_number() ? figure_text(number_of(*value)) : "-");
    }
    rows.push_back(std::move(row));
  };
  for (const Row& row : kRows) add(row.label, row.key);
  for (const char* kind : {"ttft", "tpot", "itl", "e2el"})
    for (const char* share : {"mean", "p50", "p90", "p95", "p99"})
      add(fmt::format("{} {}, ms", kind, share), fmt::format("{}_{}_ms", share, kind));
  page.table(header, rows);
}

}  // namespace

std::string load_html(const std::vector<json::object>& reports) {
  std::vector<std::string> names;
  for (size_t i = 0; i < reports.size(); ++i) {
    std::string label = reported_text(reports[i], "label");
    if (label.empty()) label = reported_text(reports[i], "model_id");
    names.push_back(label.empty() ? fmt::format("run {}", i + 1) : label);
  }
  HtmlPage page("Serving benchmark", fmt::format("{}", fmt::join(names, ", ")));
  Chart ttft{
      .title = "Time to first token", .x = {.title = "ms"}, .y = {.title = "% of requests", .high = 100}};
  Chart gaps{.title = "Time between tokens", .x = {.title = "ms"}, .y = {.title = "% of gaps", .high = 100}};
  Chart tokens{.title = "Output over time", .x = {.title = "seconds"}, .y = {.title = "tokens a second"}};
  Chart running{.title = "Requests under way", .x = {.title = "seconds"}, .y = {.title = "requests"}};
  std::vector<std::string> lanes;
  for (size_t i = 0; i < reports.size(); ++i) {
    const std::vector<ReportedRequest> requests = requests_of(reports[i]);
    LoadSeries series = series_of(names[i], requests);
    ttft.series.push_back(std::move(series.ttft));
    gaps.series.push_back(std::move(series.gaps));
    tokens.series.push_back(std::move(series.tokens));
    running.series.push_back(std::move(series.running));
    lanes.push_back(request_lanes(names[i], requests));
  }
  std::vector<std::string> figures{chart_svg(ttft), chart_svg(gaps), chart_svg(tokens), chart_svg(running)};
  figures.insert(figures.end(), lanes.begin(), lanes.end());
  page.figures(figures);
  page.heading("Figures");
  add_summary(page, reports, names);
  for (size_t i = 0; i < reports.size(); ++i) {
    page.heading(names[i]);
    page.preformatted(load_text(reports[i]));
  }
  return page.text();
}

}  // namespace sluice::lab
