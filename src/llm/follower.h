// A rank that computes a part of another's session.
#pragma once

#include "base/result.h"
#include "llm/session_options.h"

namespace sluice::llm {

// Loads this rank's part of the model and works for rank 0 until that one ends. REQUIRES: options.group, which this rank
// does not lead.
Status follow_session(const SessionOptions& options);

}  // namespace sluice::llm
