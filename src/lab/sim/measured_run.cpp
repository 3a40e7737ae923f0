#include "lab/sim/measured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::lab {

namespace {

constexpr double kSampleInterval = 4;  // seconds of the run

}  // namespace

void TimedExecutor::submit(const request::Step& step) {
  if (calibration_ != nullptr && clock_.seconds - sampled_at_ > kSampleInterval) {
    calibration_->sample();
    sampled_at_ = clock_.seconds;
  }
  const Stopwatch watch(time_);
  model_.submit(step);
  clock_.seconds += watch.seconds();
}

Result<std::vector<request::Outcome>> TimedExecutor::collect() {
  const Stopwatch watch(time_);
  Result<std::vector<request::Outcome>> outcomes = model_.collect();
  clock_.seconds += watch.seconds();
  return outcomes;
}

std::vector<ComparedFigure> compare_loads(const json::object& simulated, const json::object& measured) {
  constexpr std::pair<const char*, const char*> kFigures[] = {
      {"output_throughput", "tokens/s"}, {"median_ttft_ms", "ms"}, {"p99_ttft_ms", "ms"},
      {"median_tpot_ms", "ms"},          {"p99_tpot_ms", "ms"},
  };
  std::vector<ComparedFigure> out;
  for (const auto& [key, unit] : kFigures)
    out.push_back({key, unit, simulated.at(key).to_number<double>(), measured.at(key).to_number<double>()});
  return out;
}

std::string compared_text(const std::vector<ComparedFigure>& figures) {
  std::string out = "| figure | simulated | measured | error |\n|---|---:|---:|---:|\n";
  for (const ComparedFigure& one : figures)
    out += fmt::format("| {} | {:.1f} {} | {:.1f} {} | {:+.1f} % |\n", one.name, one.simulated, one.unit,
                       one.measured, one.unit, one.error() * 100);
  const auto worst = std::max_element(figures.begin(), figures.end(), [](const auto& a, const auto& b) {
    return std::abs(a.error()) < std::abs(b.error());
  });
  return out + fmt::format("worst: {}, {:+.1f} %\n", worst->name, worst->error() * 100);
}

}  // namespace sluice::lab
