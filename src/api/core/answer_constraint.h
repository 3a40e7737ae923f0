// What an answer must be: the form that the request asks for, the calls that its tools allow, and how long it may reason
// before either begins.
#pragma once

#include <optional>

#include "api/core/answer.h"
#include "api/fields/field_table.h"

namespace sluice::api {

struct AnswerConstraint {
  std::optional<request::Constraint> constraint;
  bool is_wish = false;  // the request goes on without it where it cannot be compiled
};

// Whether the prompt has opened the reasoning is seen at its end. `format` may be null.
chat::AnswerStart answer_start(const ServedModel& model, const AnswerSetup& setup,
                               const chat::ReasoningFormat* format);

// REQUIRES: the prompts are there.
Problem constrain_answer(const ServedModel& model, const AnswerSetup& setup, AnswerConstraint& out);

}  // namespace sluice::api
