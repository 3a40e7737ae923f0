#include "lab/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "lab/html/chart.h"
#include "lab/html/page.h"
#include "lab/load/drive.h"
#include "llm/session.h"
#include "models/model.h"

namespace sluice::lab {

namespace {

std::string point_key(const SweepOptions& options, const std::vector<std::string>& settings) {
  return fmt::format("{}|{}|{}", options.session.model, options.workload_key, fmt::join(settings, "|"));
}

double at_key(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

SweepPoint point_of(const SweepOptions& options, const std::vector<std::string>& settings,
                    const json::object& report) {
  SweepPoint point{.settings = settings};
  point.tokens_per_second = at_key(report, "output_throughput");
  point.good_requests_per_second = at_key(report, "request_goodput");
  point.ttft_p50 = at_key(report, "p50_ttft_ms");
  point.ttft_p99 = at_key(report, "p99_ttft_ms");
  point.tpot_p50 = at_key(report, "p50_tpot_ms");
  point.tpot_p99 = at_key(report, "p99_tpot_ms");
  const auto within = [](double ms, const std::optional<double>& limit) {
    return !limit || ms <= *limit * 1e3;
  };
  point.within_limits = within(point.ttft_p99, options.limits.ttft) &&
                        within(point.tpot_p99, options.limits.tpot) &&
                        within(at_key(report, "p99_e2el_ms"), options.limits.e2el);
  return point;
}

// Reports of earlier runs by their key. A last line that was cut off is left out: its point runs again.
std::map<std::string, json::object> read_results(const std::string& path) {
  std::map<std::string, json::object> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Result<json::value> value = parse_json(line, path);
    if (!value || !value->is_object()) continue;
    const json::value* key = value->as_object().if_contains("key");
    if (key != nullptr && key->is_string()) out[std::string(key->as_string())] = value->as_object();
  }
  return out;
}

Result<json::object> run_point(const SweepOptions& options, const std::vector<std::string>& settings) {
  llm::SessionOptions session_options = options.session;
  session_options.needs_tokenizer = !options.workload.listed.empty();  // random tokens need none
  session_options.queue.requests = size_t{1} << 20;
  session_options.queue.tokens = size_t{1} << 30;
  OptionSet known;
  session_options.engine.declare(known);
  known.add(session_options.model, "model", "file, folder or name");
  if (Status status = set_values(known, settings); !status) return status.error();
  Result<std::unique_ptr<llm::Session>> session = llm::Session::open(session_options);
  if (!session) return session.error();
  WorkloadOptions load = options.workload;
  load.vocab = std::min(load.vocab, (*session)->model().spec().vocab);
  load.first_token = std::min(load.first_token, load.vocab / 2);
  Workload workload(load);
  const EncodeText encode = [&](const std::string& text) { return (*session)->encode_text(text); };
  LoadResult result = drive_engine((*session)->engine(), workload, encode, [](const LoadProgress&) {});
  for (const LoadRecord& record : result.records)
    if (!record.error.empty()) return Error{ErrorCode::Internal, record.error};
  result.limits = options.limits;
  json::object report = load_json(result);
  for (const char* list : {"itls", "ttfts", "input_lens", "output_lens", "start_times", "errors"})
    report.erase(list);
  return report;
}

}  // namespace

Result<SweepAxis> SweepAxis::parse(const std::string& text) {
  const size_t equals = text.find('=');
  SweepAxis axis;
  axis.name = text.substr(0, equals);
  for (size_t begin = equals; begin != text.npos && begin < text.size();) {
    const size_t end = std::min(text.find(',', begin + 1), text.size());
    axis.values.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  const bool good = !axis.name.empty() && !axis.values.empty() &&
                    std::find(axis.values.begin(), axis.values.end(), "") == axis.values.end();
  if (good) return axis;
  return Error{ErrorCode::InvalidArgument, fmt::format("--grid '{}' must be as max-seqs=8,16,32", text)};
}

std::string SweepPoint::flags() const {
  std::string out;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    out += fmt::format("{}--{} {}", out.empty() ? "" : " ", setting.substr(0, equals),
                       setting.substr(equals + 1));
  }
  return out;
}

Result<std::vector<SweepPoint>> run_sweep(const SweepOptions& options,
                                          const std::function<void(const SweepPoint&)>& done) {
  std::vector<std::vector<std::string>> grid{{}};
  for (const SweepAxis& axis : options.axes) {
    std::vector<std::vector<std::string>> wider;
    for (const std::vector<std::string>& point : grid) {
      for (const std::string& value : axis.values) {
        wider.push_back(point);
        wider.back().push_back(axis.name + "=" + value);
      }
    }
    grid = std::move(wider);
  }
  std::map<std::string, json::object> known;
  if (!options.results.empty()) known = read_results(options.results);
  std::vector<SweepPoint> out;
  for (const std::vector<std::string>& settings : grid) {
    const std::string key = point_key(options, settings);
    auto found = known.find(key);
    if (found == known.end()) {
      Result<json::object> report = run_point(options, settings);
      if (!report)
        return Error{report.error().code,
                     fmt::format("{}: {}", fmt::join(settings, " "), report.error().message)};
      (*report)["key"] = key;
      if (!options.results.empty()) {
        std::ofstream file(options.results, std::ios::app);
        file << write_json(*report) << std::endl;
        if (!file) return Error{ErrorCode::Io, fmt::format("'{}' cannot be written", options.results)};
      }
      found = known.emplace(key, std::move(*report)).first;
    }
    out.push_back(point_of(options, settings, found->second));
    done(out.back());
  }
  return out;
}

std::vector<size_t> frontier(const std::vector<SweepPoint>& points) {
  std::vector<size_t> out;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto beats = [&](const SweepPoint& other) {
      return other.tokens_per_second >= points[i].tokens_per_second && other.tpot_p50 <= points[i].tpot_p50 &&
             (other.tokens_per_second > points[i].tokens_per_second || other.tpot_p50 < points[i].tpot_p50);
    };
    if (std::none_of(points.begin(), points.end(), beats)) out.push_back(i);
  }
  std::sort(out.begin(), out.end(),
            [&](size_t a, size_t b) { return points[a].tokens_per_second < points[b].tokens_per_second; });
  return out;
}

std::optional<size_t> best_point(const std::vector<SweepPoint>& points) {
  std::optional<size_t> best;
  for (size_t i = 0; i < points.size(); ++i)
    if (points[i].within_limits && (!best || points[i].tokens_per_second > points[*best].tokens_per_second))
      best = i;
  return best;
}

namespace {

constexpr const char* kSweepColumns[] = {"flags",       "tokens/s", "TTFT p50 ms",     "p99",
                                         "TPOT p50 ms", "p99",      "good requests/s", ""};

std::vector<std::vector<std::string>> sweep_rows(const std::vector<SweepPoint>& points) {
  const std::vector<size_t> front = frontier(points);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < points.size(); ++i) {
    const SweepPoint& p = points[i];
    std::string note = std::find(front.begin(), front.end(), i) != front.end() ? "frontier" : "";
    if (!p.within_limits) note += note.empty() ? "over the limits" : ", over the limits";
    rows.push_back({p.flags(), fmt::format("{:.1f}", p.tokens_per_second), fmt::format("{:.0f}", p.ttft_p50),
                    fmt::format("{:.0f}", p.ttft_p99), fmt::format("{:.1f}", p.tpot_p50),
                    fmt::format("{:.1f}", p.tpot_p99), fmt::format("{:.2f}", p.good_requests_per_second),
                    std::move(note)});
  }
  return rows;
}

std::string best_text(const std::vector<SweepPoint>& points) {
  const std::optional<size_t> best = best_point(points);
  return best ? fmt::format("best: {}", points[*best].flags()) : "no point keeps the limits";
}

}  // namespace

std::string sweep_text(const std::vector<SweepPoint>& points) {
  std::string out =
      fmt::format("| {} |\n|---|---:|---:|---:|---:|---:|---:|---|\n", fmt::join(kSweepColumns, " | "));
  for (const std::vector<std::string>& row : sweep_rows(points))
    out += fmt::format("| {} |\n", fmt::join(row, " | "));
  return out + best_text(points) + "\n";
}

std::string sweep_html(const std::vector<SweepPoint>& points, const std::string& workload) {
  HtmlPage page("Sweep", workload);
  Chart chart{.title = "Throughput over latency: up and left is better",
              .x = {.title = "TPOT p50, ms"},
              .y = {.title = "tokens a second"}};
  ChartSeries line{.name = "frontier", .points = {}},
      dots{.name = "points", .style = ChartSeries::Style::Dots, .points = {}};
  for (const size_t i : frontier(points))
    line.points.emplace_back(points[i].tpot_p50, points[i].tokens_per_second);
  for (const SweepPoint& p : points) {
    dots.points.emplace_back(p.tpot_p50, p.tokens_per_second);
    dots.notes.push_back(p.flags());
  }
  chart.series = {std::move(line), dots};
  Chart first{
      .title = "Throughput over TTFT", .x = {.title = "TTFT p50, ms"}, .y = {.title = "tokens a second"}};
  for (size_t i = 0; i < points.size(); ++i) dots.points[i].first = points[i].ttft_p50;
  first.series = {std::move(dots)};
  page.figures({chart_svg(chart), chart_svg(first)});
  page.paragraph(best_text(points));
  page.table({std::begin(kSweepColumns), std::end(kSweepColumns)}, sweep_rows(points));
  return page.text();
}

}  // namespace sluice::lab
