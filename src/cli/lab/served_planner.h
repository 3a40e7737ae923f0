// The planner behind a served model's Lab tab.
#pragma once

#include <memory>

#include "api/lab/planner.h"
#include "llm/engine_flags.h"
#include "llm/session.h"

namespace sluice::cli {

// With this machine's profile where --calibrate left one, else with the figures of the GPU by its name or of a server's
// processor. `flags` are those that the session was opened with; it outlives the result.
std::unique_ptr<api::Planner> make_served_planner(const llm::Session& session, const llm::EngineFlags& flags);

}  // namespace sluice::cli
