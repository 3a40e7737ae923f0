// The prompt of a request as the model sees it, and the names of its KV blocks: what replicas would make of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/service.h"
#include "base/ids.h"
#include "route/policy.h"

namespace sluice::route {

struct ReadPrompt {
  std::vector<Token> tokens;
  std::string salt;  // the request's own
};

class PromptReader {
 public:
  // What the models refer to outlives the reader. Without a model nothing is read.
  explicit PromptReader(std::vector<api::ServedModel> models) : models_(std::move(models)) {}

  // The first prompt of a request that generates text; nothing where it is not one, or is too long to be read here.
  std::optional<ReadPrompt> read(std::string_view method, std::string_view path,
                                 const std::string& body) const;

 private:
  std::vector<api::ServedModel> models_;
};

// As a replica with these names them. `salt`: the replica's for this client.
PromptBlocks blocks_of(const ReadPrompt& prompt, const ReplicaState& replica, std::string_view salt);

}  // namespace sluice::route
