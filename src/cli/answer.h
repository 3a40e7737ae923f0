// One answer of a session, written out while it comes.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "llm/sampling_flags.h"
#include "llm/session.h"
#include "request/request.h"

namespace sluice::cli {

// Streams the text to stdout and returns when the answer has ended. Setting `interrupted` from a signal handler cancels
// it; what came until then is the answer.
Result<llm::Answer> stream_answer(llm::Session& session, request::Request prompt,
                                  const llm::SamplingFlags& flags, const std::atomic<bool>& interrupted);

// "prompt 5 tokens (3 cached) in 0.02 s, 210 tok/s; answer 16 tokens, 71.3 tok/s; first token after 0.02 s"
std::string describe_timings(const llm::Answer& answer);

}  // namespace sluice::cli
