#include "text/jinja_limits.h"

#include <fmt/format.h>

namespace sluice::text::jinja {

void raise(std::string message) {
  throw TemplateError{ErrorCode::InvalidArgument, std::move(message)};
}

void raise_limit(std::string_view what, size_t limit) {
  throw TemplateError{ErrorCode::LimitExceeded,
                      fmt::format("template needs more {} than the limit of {}", what, limit)};
}

}  // namespace sluice::text::jinja
