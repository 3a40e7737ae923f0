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
      "way",    "ratio",           "kept",    "compress s", "TTFT s",
      "cached", "loss nats/token", "needles", "questions",  "marked spans kept"};
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
          fmt::format("{:.0f} %", p.needles * 100),
          fmt::format("{:.0f} %", p.questions * 100),
          fmt::format("{:.0f} %", p.marked * 100)};
}

const CompressPoint* point_of(const std::vector<CompressPoint>& points, ShorterBy way, double ratio) {
  for (const CompressPoint& p : points)
    if (p.way == way && p.ratio == ratio) return &p;
  return nullptr;
}

// "62 % lower", of losses.
std::string lower_than(const CompressPoint* other, const CompressPoint& point) {
  if (other == nullptr || other->loss <= 0) return "-";
  return fmt::format("{:.0f} % lower", 100 * (1 - point.loss / other->loss));
}

bool is_written(ShorterBy way) {
  return way == ShorterBy::Summary || way == ShorterBy::Extract;
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

std::string compress_verdict(const std::vector<CompressPoint>& points) {
  const CompressPoint& full = points.front();
  std::string out;
  for (const CompressPoint& p : points) {
    if (p.way == ShorterBy::Nothing || p.way == ShorterBy::Truncation || p.way == ShorterBy::Random) continue;
    out += fmt::format("{} {:.2f}: TTFT {:.2f} x, cached {:.2f} x, loss {} than random, {} than truncation\n",
                       name(p.way), p.ratio, p.ttft_s / full.ttft_s, p.cached_ttft_s / full.ttft_s,
                       lower_than(point_of(points, ShorterBy::Random, p.ratio), p),
                       lower_than(point_of(points, ShorterBy::Truncation, p.ratio), p));
  }
  return out;
}

std::string compress_texts(const std::vector<CompressPoint>& points) {
  std::string out;
  for (const CompressPoint& p : points) {
    for (const CompressOutcome& one : p.outcomes) {
      if (!is_written(p.way)) break;
      out += fmt::format("| {} {:.2f} | {} | {} | {} | {:.3f} | {} |\n", name(p.way), p.ratio, one.name,
                         one.original_tokens, one.kept_tokens, one.loss, one.right ? "right" : "wrong");
    }
  }
  if (out.empty()) return out;
  return "| way | text | tokens | kept | loss nats/token | answer |\n|---|---|---:|---:|---:|---|\n" + out;
}

json::array compress_json(const std::vector<CompressPoint>& points) {
  json::array out;
  for (const CompressPoint& p : points) {
    json::array outcomes;
    for (const CompressOutcome& one : p.outcomes)
      outcomes.push_back(json::object{{"name", one.name},
                                      {"original_tokens", one.original_tokens},
                                      {"kept_tokens", one.kept_tokens},
                                      {"loss", one.loss},
                                      {"right", one.right},
                                      {"text", one.text},
                                      {"answer", one.answered}});
    out.push_back(json::object{{"way", json::string(name(p.way))},
                               {"ratio", p.ratio},
                               {"kept", p.kept},
                               {"compress_s", p.compress_s},
                               {"ttft_s", p.ttft_s},
                               {"cached_ttft_s", p.cached_ttft_s},
                               {"loss", p.loss},
                               {"needles", p.needles},
                               {"questions", p.questions},
                               {"marked", p.marked},
                               {"texts", std::move(outcomes)}});
  }
  return out;
}

std::string compress_html(const std::vector<CompressPoint>& points, const std::string& workload) {
  HtmlPage page("Prompts made shorter", workload);
  std::vector<std::vector<std::string>> rows;
  rows.reserve(points.size());
  for (const CompressPoint& p : points) rows.push_back(compress_cells(p));
  page.table(compress_columns(), rows);
  page.figures(
      {compress_curve(points, "Needles found", "%", [](const CompressPoint& p) { return p.needles * 100; }),
       compress_curve(points, "Questions answered", "%",
                      [](const CompressPoint& p) { return p.questions * 100; }),
       compress_curve(points, "Loss of the full prompt's answer", "nats per token",
                      [](const CompressPoint& p) { return p.loss; }),
       compress_curve(points, "Time to first token, compression included", "seconds",
                      [](const CompressPoint& p) { return p.ttft_s; })});
  return page.text();
}

}  // namespace sluice::lab
