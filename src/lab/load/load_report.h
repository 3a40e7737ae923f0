// What clients saw of a load, with the layout and the names of `vllm bench serve`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice::lab {

// One request. Seconds after the start of the load.
struct LoadRecord {
  double start = 0, first = 0, end = 0;
  int input = 0, output = 0;    // tokens
  std::vector<float> arrivals;  // of its pieces, the first among them; empty where they are not kept
  std::string error;            // empty: it ended well
};

// Limits of the requests that count as good.
struct ServiceLimits {
  std::optional<double> ttft, tpot, e2el;  // seconds

  bool any() const { return ttft || tpot || e2el; }
};
// "ttft:200ms,tpot:30ms"; a number without a unit is in milliseconds, as vLLM has it.
Result<ServiceLimits> parse_service_limits(std::string_view text);

struct LoadResult {
  std::string label;  // of the column in a comparison
  std::string backend, model;
  json::object settings;  // of the run, as they are to be reported
  double duration = 0;
  double request_rate = 0;  // asked for; 0 or infinite: none
  int concurrency = 0;      // asked for; 0: any
  std::vector<LoadRecord> records;
  ServiceLimits limits;
};

// Every key of vLLM's result file; seconds become milliseconds where its keys say so.
json::object load_json(const LoadResult& result);
std::string load_text(const json::object& report);
// Several reports beside each other, as one page.
std::string load_html(const std::vector<json::object>& reports);

// The value below which so many percent lie, between the nearest two. REQUIRES: sorted.
double percentile(const std::vector<double>& sorted, double percent);

}  // namespace sluice::lab
