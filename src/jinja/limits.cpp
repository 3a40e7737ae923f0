#include "jinja/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::jinja {

void raise(std::string message) {
  throw TemplateError{ErrorCode::InvalidArgument, std::move(message)};
}

void raise_limit(std::string_view what, size_t limit) {
  throw TemplateError{ErrorCode::LimitExceeded,
                      fmt::format("template needs more {} than the limit of {}", what, limit)};
}

void Budget::look() {
  if (steps_ > limits_.steps) raise_limit("steps", limits_.steps);
  next_look_ = std::min(steps_ + kLookSteps, limits_.steps + 1);
  if (interrupt_ == nullptr) return;
  if (Status status = interrupt_->check(); !status)
    throw TemplateError{status.error().code, status.error().message, true};
}

}  // namespace sluice::jinja
