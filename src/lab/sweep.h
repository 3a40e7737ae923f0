// A grid of settings, each under the same load: what a knob does to throughput and latency.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lab/load/load_report.h"
#include "lab/load/workload.h"
#include "llm/session_options.h"

namespace sluice::lab {

// "max-seqs=8,16,32"; the name is one of the engine's options, or "model".
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;

  static Result<SweepAxis> parse(const std::string& text);
};

struct SweepPoint {
  std::vector<std::string> settings;  // "max-seqs=8"
  double tokens_per_second = 0, good_requests_per_second = 0;
  double ttft_p50 = 0, ttft_p99 = 0, tpot_p50 = 0, tpot_p99 = 0;  // milliseconds
  bool within_limits = true;                                      // p99 of TTFT and TPOT

  std::string flags() const;  // "--max-seqs 8 --threads 2"
};

struct SweepOptions {
  llm::SessionOptions session;
  WorkloadOptions workload;
  ServiceLimits limits;
  std::vector<SweepAxis> axes;
  std::string results;       // a file of JSON lines: points in it are not run again; empty: none
  std::string workload_key;  // tells loads apart in that file
};

// Every combination in order. `done` sees each point, run or read back.
Result<std::vector<SweepPoint>> run_sweep(const SweepOptions& options,
                                          const std::function<void(const SweepPoint&)>& done);

// Points that no other beats in both throughput and TPOT p50, by throughput.
std::vector<size_t> frontier(const std::vector<SweepPoint>& points);
// The most throughput within the limits; absent where no point keeps them.
std::optional<size_t> best_point(const std::vector<SweepPoint>& points);

std::string sweep_text(const std::vector<SweepPoint>& points);
std::string sweep_html(const std::vector<SweepPoint>& points, const std::string& workload);

}  // namespace sluice::lab
