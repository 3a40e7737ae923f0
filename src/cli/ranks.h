// The options of verbs that several ranks can run together: mpirun starts each of them with the same command line.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "kernels/group_device.h"
#include "llm/session_options.h"
#include "models/model_group.h"

namespace sluice::cli {

struct RankFlags {
  models::Cuts cuts;         // but for the layers of stages
  std::string stage_layers;  // "14,18"; empty: by what they cost, or were seen to take
  double rank_timeout = 1;   // seconds
  kernels::Collectives collectives = kernels::Collectives::Auto;

  void declare(OptionSet& options);
  // An error names the options that contradict each other.
  Result<models::Cuts> read_cuts() const;
  // The ranks that the options ask for; null: this process alone.
  Result<std::shared_ptr<models::ModelGroup>> join() const;
  // Joins them for a session. The exit code of this process where it has nothing more to do: it could not join, or is not
  // rank 0 and has worked for that one to the end.
  std::optional<int> join_session(llm::SessionOptions& options) const;
  // Which of the processes that mpirun has started on this machine this one is.
  static int place();
};

}  // namespace sluice::cli
