#include "api/core/pending_grammar.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <variant>

#include "api/core/errors.h"

namespace sluice::api {

namespace {

const char* field_of(const request::Constraint& constraint) {
  const auto* tag = std::get_if<request::StructuralTag>(&constraint.body);
  return tag != nullptr && tag->lenient ? "tools" : "response_format";
}

}  // namespace

PendingGrammar::PendingGrammar(const request::Constraint& constraint)
    : field_(field_of(constraint)),
      is_schema_(std::holds_alternative<request::JsonSchema>(constraint.body)) {}

std::shared_ptr<PendingGrammar> PendingGrammar::begin(grammar::GrammarStore& store,
                                                      const request::Constraint& constraint) {
  auto pending = std::make_shared<PendingGrammar>(constraint);
  store.get(constraint, [pending](Result<grammar::GrammarStore::Grammar> grammar) {
    pending->settle_with(std::move(grammar));
  });
  return pending;
}

std::optional<ApiError> PendingGrammar::problem() const {
  if (state() != State::Failed) return std::nullopt;
  if (error().code == ErrorCode::Unavailable) return to_api_error(error());
  ApiError told = invalid_value(field_, fmt::format("'{}': {}", field_, error().message));
  if (is_schema_) told.code = "json_schema_invalid";
  return told;
}

}  // namespace sluice::api
