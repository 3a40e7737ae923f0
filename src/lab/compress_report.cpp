// Figures of `sluice bench compress`: a table, JSON, and a page with curves.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lab/compress_bench.h"
#include "lab/html/chart.h"
#include "lab/html/page.h"

namespace sluice::lab {

namespace {

const std::vector<std::string>& compress_columns() {
  static const std::vector<std::string> columns{
      "way", "ratio", "kept", "compress s", "TTFT s", "cached", "loss nats/token", "right answers"};
  return columns;
}

std::vector<std::string> compress_cells(const CompressPoint& p) {
  return {std::string(name(p.way)),
          fmt::format("{:.2f}", p.ratio),
          fmt::format("{:.0f} %", p.kept * 100),
          fmt::format("{:.2f}", p.compress_s),
          fmt::format("{:.2f}", p.ttft_s),
          fmt::format("{:.2f}", p.cached_ttft_s),
          fmt::format("{:.3f}", p.loss),
          fmt::format("{:.0f} %", p.exact * 100)};
}

template <class Value>
std::string compress_curve(const std::vector<CompressPoint>& points, const std::string& title,
                           const std::string& unit, Value value) {
  Chart chart{.title = title,
              .x = {.title = "% of tokens kept", .low = 0, .high = 100},
              .y = {.title = unit},
              .series = {}};
  std::set<ShorterBy> ways;
  for (const CompressPoint& p : points)
    if (p.way != ShorterBy::Nothing) ways.insert(p.way);
  for (const ShorterBy way : ways) {
    ChartSeries line{.name = std::string(name(way)), .points = {}};
    for (const CompressPoint& p : points)
      if (p.way == way) line.points.emplace_back(p.kept * 100, value(p));
    line.points.emplace_back(100, value(points.front()));
    std::sort(line.points.begin(), line.points.end());
    chart.series.push_back(std::move(line));
  }
  return chart_svg(chart);
}

}  // namespace

std::string compress_header() {
  std::string rule = "|---|";
  for (size_t i = 1; i < compress_columns().size(); ++i) rule += "---:|";
  return fmt::format("| {} |\n{}\n", fmt::join(compress_columns(), " | "), rule);
}

std::string compress_row(const CompressPoint& point) {
  return fmt::format("| {} |\n", fmt::join(compress_cells(point), " | "));
}

json::array compress_json(const std::vector<CompressPoint>& points) {
  json::array out;
  for (const CompressPoint& p : points)
    out.push_back(json::object{{"way", json::string(name(p.way))},
                               {"ratio", p.ratio},
                               {"kept", p.kept},
                               {"compress_s", p.compress_s},
                               {"ttft_s", p.ttft_s},
                               {"cached_ttft_s", p.cached_ttft_s},
                               {"loss", p.loss},
                               {"exact", p.exact}});
  return out;
}

std::string compress_html(const std::vector<CompressPoint>& points, const std::string& workload) {
  HtmlPage page("Prompts made shorter", workload);
  std::vector<std::vector<std::string>> rows;
  rows.reserve(points.size());
  for (const CompressPoint& p : points) rows.push_back(compress_cells(p));
  page.table(compress_columns(), rows);
  page.figures(
      {compress_curve(points, "Right answers", "%", [](const CompressPoint& p) { return p.exact * 100; }),
       compress_curve(points, "Loss of the full prompt's answer", "nats per token",
                      [](const CompressPoint& p) { return p.loss; }),
       compress_curve(points, "Time to first token, compression included", "seconds",
                      [](const CompressPoint& p) { return p.ttft_s; })});
  return page.text();
}

}  // namespace sluice::lab
