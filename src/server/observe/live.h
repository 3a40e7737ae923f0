// The live stream's events, as docs/live.md says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/core/server_context.h"

namespace sluice::server {

// One reader's view: what it has been told already is kept here.
class LiveView {
 public:
  explicit LiveView(ServerContext& state) : state_(state) {}

  // The first event.
  std::string hello();
  // One event per model, of what happened since the last call; a first event again where the models have changed.
  std::string next();
  // Seconds until next() has something to say.
  double interval() const { return interval_; }

 private:
  std::string begin(const std::shared_ptr<const ModelSet>& set);
  json::object model_state(const Backend& backend, size_t index);

  double time_of(TimePoint moment) const;

  ServerContext& state_;
  double interval_ = 0;
  std::weak_ptr<const ModelSet> seen_;          // what the reader knows; not held, so that models can go
  std::vector<engine::Trace::Cursor> cursors_;  // per model of it
};

// Runs of equal owners: [length, owner, shared]; every stride-th block.
json::array owner_runs(const engine::Snapshot::Group& group, size_t stride);

}  // namespace sluice::server
