// The grammar of an answer. It may still be compiled while the engine runs the prompt: then it is the gate of the request,
// which opens when the grammar is there.
#pragma once

#include <memory>
#include <optional>

#include "api/core/service.h"
#include "grammar/grammar_gate.h"
#include "grammar/grammar_store.h"
#include "request/constraint.h"

namespace sluice::api {

class PendingGrammar final : public grammar::GrammarGate {
 public:
  // Settled before it returns where the grammar is known or the constraint cannot be used.
  static std::shared_ptr<PendingGrammar> begin(grammar::GrammarStore& store,
                                               const request::Constraint& constraint);
  explicit PendingGrammar(const request::Constraint& constraint);

  // What the client is told where the grammar cannot be had; nothing as long as that is not known.
  std::optional<ApiError> problem() const;

 private:
  const char* field_;
  bool is_schema_;
};

}  // namespace sluice::api
