// The models of sluice serve: what the command line says about them, and each as the server takes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "llm/session_options.h"
#include "request/sampling_params.h"
#include "server/core/model_pool.h"

namespace sluice::cli {

// "NAME=MODEL" or "MODEL".
struct NamedModel {
  std::string name;  // empty: none was given
  std::string reference;
};
// What stands before the first '=' is a name unless it has a slash in it, or the whole text is a path that exists.
Result<NamedModel> parse_named_model(const std::string& text);

// Options of the models, and all that a session of one is opened with.
struct ServeModels {
  std::vector<std::string> models, names, aliases, shares;
  request::SamplingDefaults sampling;  // before the models' own
  llm::SessionOptions session;         // of each; its queue is set from what follows
  std::string compressor, tool_format;
  int queue_requests = 1024;
  int queue_tokens = 4 << 20;
  double max_queue_time = 0;
  int max_output = 0;

  void declare(OptionSet& options);
  // Names, aliases and parts of memory and cores made concrete. Errors name the option.
  Result<std::vector<server::ModelPool::Known>> resolve() const;
};

}  // namespace sluice::cli
