// The live stream's events, as docs/live.md says.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/core/server_context.h"

namespace sluice::server {

// One reader's view: what it has been told already is kept here.
class LiveView {
 public:
  // REQUIRES: state.loaded()
  explicit LiveView(ServerContext& state);

  // The first event.
  std::string hello() const;
  // One event per model, of what happened since the last call.
  std::string next();
  // Seconds until next() has something to say.
  double interval() const { return interval_; }

 private:
  json::object model_state(size_t index);

  double time_of(TimePoint moment) const;

  ServerContext& state_;
  double interval_ = 0;
  std::vector<engine::Trace::Cursor> cursors_;  // per model
};

// Runs of equal owners: [length, owner, shared]; every stride-th block.
json::array owner_runs(const engine::Snapshot::Group& group, size_t stride);

}  // namespace sluice::server
