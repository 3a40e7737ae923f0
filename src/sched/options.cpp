#include "sched/options.h"

#include <fmt/format.h>

namespace sluice::sched {

Result<NamedScheme> scheme_named(std::string_view name) {
  std::string known;
  for (const NamedScheme& scheme : kSchemes) {
    if (scheme.name == name) return scheme;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", scheme.name);
  }
  return Error{ErrorCode::InvalidArgument, fmt::format("unknown scheme '{}'; there are {}", name, known)};
}

Status validate(const SchedulerOptions& options) {
  const auto too_small = [](std::string_view what, int value) {
    return Error{ErrorCode::InvalidArgument, fmt::format("{} is {}, must be at least 1", what, value)};
  };
  if (options.max_seqs < 1) return too_small("max-seqs", options.max_seqs);
  if (options.max_step_tokens < 1) return too_small("max-step-tokens", options.max_step_tokens);
  if (options.max_context < 1) return too_small("context", options.max_context);
  if (options.stages < 1) return too_small("the number of stages", options.stages);
  if (options.max_preemptions < 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("max-preemptions is {}, must not be negative", options.max_preemptions)};
  }
  if (options.layout == Layout::Padded && options.max_step_tokens < options.max_seqs) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("max-step-tokens {} cannot hold one token of each of max-seqs {} padded rows",
                             options.max_step_tokens, options.max_seqs)};
  }
  if (!(options.scheme.max_batch_wait.count() >= 0)) {
    return Error{ErrorCode::InvalidArgument, "batch-wait must not be negative"};
  }
  if (const auto* gap = std::get_if<Seconds>(&options.target_tbt); gap != nullptr && !(gap->count() > 0))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("target-tbt is {:g} ms; it must be above 0", gap->count() * 1e3)};
  if (!(options.contended_step.count() > 0))
    return Error{ErrorCode::InvalidArgument, "the longest step while clients share must be over 0 s"};
  return {};
}

}  // namespace sluice::sched
