// The options of a load, the same for every verb that makes one.
#pragma once

#include <string>

#include "base/options.h"
#include "base/result.h"
#include "lab/load/load_report.h"
#include "lab/load/workload.h"

namespace sluice::cli {

struct LoadFlags {
  std::string input = "128", output = "128", dataset, slo;
  double rate = 0;  // 0: a closed loop
  double duration = 0;
  lab::WorkloadOptions workload;

  void declare(OptionSet& options);
  Result<lab::WorkloadOptions> resolve() const;
  Result<lab::ServiceLimits> limits() const { return lab::parse_service_limits(slo); }
};

// Writes a report to the files that were asked for and its text to stdout.
Status write_load_report(const json::object& report, const std::string& json_file,
                         const std::string& html_file);

}  // namespace sluice::cli
