// One workload under each scheduling scheme, layout, KV policy and preemption, side by side.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/trace.h"
#include "lab/load/workload.h"
#include "llm/session_options.h"

namespace sluice::lab {

struct SchemeOptions {
  llm::SessionOptions session;  // what all of them share
  WorkloadOptions workload;
  int no_cache_requests = 4;  // without KV cache, whose work grows with the square of the length
};

struct SchemeResult {
  std::string name, policy;
  int64_t requests = 0;
  double seconds = 0, generated = 0;
  int longest = 0;  // answer
  // Seconds.
  double ttft_p50 = 0, ttft_p99 = 0, tpot_p50 = 0, tbt_p50 = 0, tbt_p99 = 0;
  double padding = 0, kv_share = 0, batch = 0, cached = 0;  // shares, sequences, tokens
  uint64_t preempted = 0;
  std::vector<std::pair<double, double>> kv_over_time;  // seconds, share of the blocks
  std::vector<std::shared_ptr<const engine::TracedStep>> steps;
  TimePoint start{};

  double tokens_per_second() const { return generated / seconds; }
  // batch · max_tokens / total time, the throughput of a batch that answers as one.
  double batch_throughput() const { return double(requests) * longest / seconds; }
  // total time / max_tokens
  double latency_per_token() const { return seconds / std::max(1, longest); }
};

// `done` sees each row as it comes. An error names the scheme.
Result<std::vector<SchemeResult>> run_schemes(const SchemeOptions& options,
                                              const std::function<void(const SchemeResult&)>& done);

std::string schemes_header();
std::string schemes_row(const SchemeResult& result);
json::array schemes_json(const std::vector<SchemeResult>& results);
// The first seconds of static, iteration-level and continuous batching, as an .svg file.
std::string schemes_svg(const std::vector<SchemeResult>& results);
std::string schemes_html(const std::vector<SchemeResult>& results, const std::string& workload);

}  // namespace sluice::lab
