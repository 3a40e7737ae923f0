// A session for somebody at a terminal: how far the weights are is shown there.
#pragma once

#include <memory>

#include "llm/session.h"
#include "llm/session_options.h"

namespace sluice::cli {

Result<std::unique_ptr<llm::Session>> open_session(llm::SessionOptions options);

}  // namespace sluice::cli
