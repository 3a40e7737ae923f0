// What a session is opened with.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "llm/engine_flags.h"
#include "models/model_group.h"

namespace sluice::llm {

struct SessionOptions {
  std::string model;    // path or name; empty: the default model
  std::string amateur;  // second model of contrastive decoding; empty: none
  bool needs_tokenizer = true;
  EngineFlags engine;
  engine::QueueLimits queue;
  std::shared_ptr<models::ModelGroup>
      group;                            // of ranks that compute the model together; null: this one alone
  std::function<void(float)> progress;  // called with the share of the weights that is loaded; may be empty
};

}  // namespace sluice::llm
