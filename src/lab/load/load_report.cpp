#include "lab/load/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

namespace sluice::lab {

namespace {

constexpr double kLoadPercentiles[] = {50, 90, 95, 99};

struct LatencyKind {
  std::string_view key, label, title;
};
constexpr LatencyKind kLatencies[] = {
    {"ttft", "TTFT", "Time to First Token"},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    {"itl", "ITL", "Inter-token Latency"},
    {"e2el", "E2EL", "End-to-end Latency"},
};

double tpot_of(const LoadRecord& record) {
  return record.output > 1 ? (record.end - record.first) / (record.output - 1) : 0;
}

bool is_good(const LoadRecord& record, const ServiceLimits& limits) {
  const auto within = [](double value, const std::optional<double>& limit) {
    return !limit || value <= *limit;
  };
  return within(record.first - record.start, limits.ttft) && within(tpot_of(record), limits.tpot) &&
         within(record.end - record.start, limits.e2el);
}

void add_latency(json::object& out, std::string_view key, std::vector<double> values) {
  if (values.empty()) values.push_back(0);
  std::sort(values.begin(), values.end());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  out[fmt::format("mean_{}_ms", key)] = mean * 1e3;
  out[fmt::format("median_{}_ms", key)] = percentile(values, 50) * 1e3;
  out[fmt::format("std_{}_ms", key)] = std::sqrt(squares / double(values.size())) * 1e3;
  for (const double percent : kLoadPercentiles)
    out[fmt::format("p{:.0f}_{}_ms", percent, key)] = percentile(values, percent) * 1e3;
}

// The most that any second saw, and the most requests at once.
void add_peaks(json::object& out, const LoadResult& result) {
  std::map<int64_t, double> tokens;
  std::vector<std::pair<double, int>> edges;
  for (const LoadRecord& record : result.records) {
    for (const float at : record.arrivals) ++tokens[static_cast<int64_t>(at)];
    edges.emplace_back(record.start, 1);
    edges.emplace_back(record.end, -1);
  }
  double peak = 0;
  for (const auto& [second, count] : tokens) peak = std::max(peak, count);
  std::sort(edges.begin(), edges.end());
  int running = 0, most = 0;
  for (const auto& [at, change] : edges) most = std::max(most, running += change);
  out["max_output_tokens_per_s"] = peak;
  out["max_concurrent_requests"] = most;
}

struct Samples {
  std::vector<double> ttft, tpot, itl, e2el;
};

Samples add_requests(json::object& out, const LoadResult& result) {
  Samples samples;
  json::array inputs, outputs, ttfts, itls, starts, errors;
  for (const LoadRecord& record : result.records) {
    inputs.emplace_back(record.input);
    outputs.emplace_back(record.output);
    starts.emplace_back(record.start);
    errors.emplace_back(record.error);
    json::array gaps;
    const bool good = record.error.empty();
    ttfts.emplace_back(good ? record.first - record.start : 0.0);
    for (size_t i = 1; i < record.arrivals.size(); ++i) {
      gaps.emplace_back(record.arrivals[i] - record.arrivals[i - 1]);
      if (good) samples.itl.push_back(record.arrivals[i] - record.arrivals[i - 1]);
    }
    itls.emplace_back(std::move(gaps));
    if (!good) continue;
    samples.ttft.push_back(record.first - record.start);
    samples.e2el.push_back(record.end - record.start);
    if (record.output > 1) samples.tpot.push_back(tpot_of(record));
  }
  out["input_lens"] = std::move(inputs);
  out["output_lens"] = std::move(outputs);
  out["ttfts"] = std::move(ttfts);
  out["itls"] = std::move(itls);
  out["start_times"] = std::move(starts);
  out["errors"] = std::move(errors);
  return samples;
}

double number_at(const json::object& report, std::string_view key) {
  const json::value* value = report.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

}  // namespace

double percentile(const std::vector<double>& sorted, double percent) {
  const double place = percent / 100 * double(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - double(low)) * (sorted[high] - sorted[low]);
}

Result<ServiceLimits> parse_service_limits(std::string_view text) {
  ServiceLimits limits;
  const Error bad{ErrorCode::InvalidArgument,
                  fmt::format("--slo '{}' must be as ttft:200ms,tpot:30ms,e2el:2s", text)};
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(", "), text.size());
    std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = part.find(':');
    if (colon == part.npos) return bad;
    const std::string_view key = part.substr(0, colon), number = part.substr(colon + 1);
    double value = 0;
    const auto [stop, problem] = std::from_chars(number.data(), number.data() + number.size(), value);
    const std::string_view unit(stop, static_cast<size_t>(number.data() + number.size() - stop));
    if (problem != std::errc() || !(value > 0) || (unit != "" && unit != "ms" && unit != "s")) return bad;
    const double seconds = unit == "s" ? value : value / 1e3;
    if (key == "ttft") {
      limits.ttft = seconds;
    } else if (key == "tpot") {
      limits.tpot = seconds;
    } else if (key == "e2el") {
      limits.e2el = seconds;
    } else {
      return bad;
    }
  }
  return limits;
}

json::object load_json(const LoadResult& result) {
  json::object out;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char date[32];
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", std::gmtime(&now));
  out["date"] = date;
  out["label"] = result.label;
  out["backend"] = result.backend;
  out["model_id"] = result.model;
  out["tokenizer_id"] = result.model;
  out["num_prompts"] = result.records.size();
  if (std::isfinite(result.request_rate) && result.request_rate > 0) {
    out["request_rate"] = result.request_rate;
  } else {
    out["request_rate"] = "inf";
  }
  out["max_concurrency"] = nullptr;
  if (result.concurrency > 0) out["max_concurrency"] = result.concurrency;
  for (const auto& [key, value] : result.settings) out[key] = value;
  int64_t completed = 0, good = 0;
  double input = 0, output = 0;
  for (const LoadRecord& record : result.records) {
    if (!record.error.empty()) continue;
    ++completed;
    input += record.input;
    output += record.output;
    if (is_good(record, result.limits)) ++good;
  }
  const double seconds = std::max(result.duration, 1e-9);
  out["duration"] = result.duration;
  out["completed"] = completed;
  out["failed"] = static_cast<int64_t>(result.records.size()) - completed;
  out["total_input_tokens"] = input;
  out["total_output_tokens"] = output;
  out["request_throughput"] = double(completed) / seconds;
  out["request_goodput"] = nullptr;
  if (result.limits.any()) out["request_goodput"] = double(good) / seconds;
  out["output_throughput"] = output / seconds;
  out["total_token_throughput"] = (input + output) / seconds;
  const Samples samples = add_requests(out, result);
  add_peaks(out, result);
  add_latency(out, "ttft", samples.ttft);
  add_latency(out, "tpot", samples.tpot);
  add_latency(out, "itl", samples.itl);
  add_latency(out, "e2el", samples.e2el);
  return out;
}

std::string load_text(const json::object& report) {
  std::string out = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  const auto line = [&](std::string_view label, const std::string& value) {
    out += fmt::format("{:<40} {:<10}\n", fmt::format("{}:", label), value);
  };
  const auto whole = [&](std::string_view label, std::string_view key) {
    line(label, fmt::format("{:.0f}", number_at(report, key)));
  };
  const auto decimal = [&](std::string_view label, std::string_view key) {
    line(label, fmt::format("{:.2f}", number_at(report, key)));
  };
  whole("Successful requests", "completed");
  whole("Failed requests", "failed");
  if (number_at(report, "max_concurrency") > 0) whole("Maximum request concurrency", "max_concurrency");
  if (number_at(report, "request_rate") > 0) decimal("Request rate configured (RPS)", "request_rate");
  decimal("Benchmark duration (s)", "duration");
  whole("Total input tokens", "total_input_tokens");
  whole("Total generated tokens", "total_output_tokens");
  decimal("Request throughput (req/s)", "request_throughput");
  if (const json::value* good = report.if_contains("request_goodput"); good != nullptr && good->is_number())
    decimal("Request goodput (req/s)", "request_goodput");
  decimal("Output token throughput (tok/s)", "output_throughput");
  decimal("Peak output token throughput (tok/s)", "max_output_tokens_per_s");
  decimal("Peak concurrent requests", "max_concurrent_requests");
  decimal("Total Token throughput (tok/s)", "total_token_throughput");
  for (const LatencyKind& kind : kLatencies) {
    out += fmt::format("{:-^50}\n", kind.title);
    decimal(fmt::format("Mean {} (ms)", kind.label), fmt::format("mean_{}_ms", kind.key));
    decimal(fmt::format("Median {} (ms)", kind.label), fmt::format("median_{}_ms", kind.key));
    for (const double percent : {90.0, 95.0, 99.0})
      decimal(fmt::format("P{:.0f} {} (ms)", percent, kind.label),
              fmt::format("p{:.0f}_{}_ms", percent, kind.key));
  }
  return out + std::string(50, '=') + "\n";
}

}  // namespace sluice::lab
