// Runs a workload against something that answers: a server, or an engine in this process.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "lab/load/load_report.h"
#include "lab/load/workload.h"

namespace sluice::lab {

struct LoadProgress {
  double seconds = 0;
  int64_t ended = 0;
  int running = 0;
  int64_t tokens = 0;
};
using OnLoadProgress = std::function<void(const LoadProgress&)>;  // now and then

struct LoadTarget {
  std::string host, port = "80", base;  // base: "/v1" and what is before it
  std::string model;                    // empty: the first that the server lists
  std::string api_key;
};

// "http://host:port" with or without "/v1".
Result<LoadTarget> parse_load_target(const std::string& url);
// Asks the server for its first model.
Result<std::string> first_model(const LoadTarget& target);

// Requests as streams of /v1/completions. One thread; errors of a request are its record's.
Result<LoadResult> drive_server(const LoadTarget& target, Workload& workload, const OnLoadProgress& progress);

// Requests straight to an engine, which takes nothing else in afterwards; `encode` makes tokens of a text.
using EncodeText = std::function<Result<std::vector<Token>>(const std::string&)>;
LoadResult drive_engine(engine::Engine& engine, Workload& workload, const EncodeText& encode,
                        const OnLoadProgress& progress);

}  // namespace sluice::lab
