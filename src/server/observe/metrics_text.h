// The metrics page, in Prometheus' text format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/core/server_context.h"

namespace sluice::server {

// Labels come out of closed sets: routes, classes of status, models of this process, reasons. The page's length does not
// depend on what clients send.
std::string metrics_text(ServerContext& state);

// The upper ends at which a histogram's buckets are cut for the page, as bucket numbers: two per octave, those of
// durations from 0.1 ms to some minutes, those of counts by octaves from 1 to two million.
std::vector<size_t> duration_cuts();
std::vector<size_t> count_cuts();

}  // namespace sluice::server
