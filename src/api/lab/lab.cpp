#include "api/lab/lab.h"

#include <fmt/format.h>

#include "api/core/errors.h"
#include "api/core/generation.h"
#include "api/fields/sampling_fields.h"
#include "api/lab/planner.h"

namespace sluice::api {

namespace {

constexpr int kMostBatch = 65'536, kMostContext = 1 << 24;

template <auto Member>
Status into_question(const json::value& value, ParsedRequest& parsed) {
  if constexpr (std::is_same_v<decltype(parsed.question.*Member), int&>) {
    parsed.question.*Member = value.to_number<int>();
  } else {
    parsed.question.*Member = std::string(value.as_string());
  }
  return {};
}

// A row of a trace: [seconds, tokens of the prompt, tokens of the answer].
Result<RecordedRequest> read_recorded(const json::value& row) {
  const json::array* numbers = row.if_array();
  if (numbers == nullptr || numbers->size() != 3 || !(*numbers)[0].is_number())
    return wrong(fmt::format("'requests' has {} where [seconds, prompt tokens, answer tokens] is expected",
                             shown(row)));
  const double at = (*numbers)[0].to_number<double>();
  const auto tokens = [&](size_t i) {
    const int64_t* value = (*numbers)[i].if_int64();
    return value != nullptr && *value >= 1 && *value <= kMostPlayedTokens ? static_cast<int>(*value) : 0;
  };
  const RecordedRequest out{at, tokens(1), tokens(2)};
  if (!(at >= 0 && at <= 86'400) || out.input == 0 || out.output == 0)
    return wrong(
        fmt::format("a request of {} tokens and {} at {} s: seconds are from 0 to 86400, tokens from 1 to {}",
                    shown((*numbers)[1]), shown((*numbers)[2]), at, kMostPlayedTokens));
  return out;
}

Status read_recorded_list(const json::value& value, ParsedRequest& parsed) {
  const json::array& rows = value.as_array();
  if (rows.empty() || rows.size() > size_t{kMostPlayed})
    return wrong(fmt::format("'requests' has {} requests, 1 to {} can be played", rows.size(), kMostPlayed));
  int64_t tokens = 0;
  for (const json::value& row : rows) {
    Result<RecordedRequest> one = read_recorded(row);
    if (!one) return one.error();
    tokens += one->input + one->output;
    parsed.recorded.push_back(*one);
  }
  if (tokens > kMostPlayedTokens)
    return wrong(fmt::format("'requests' has {} tokens in all, {} can be played", tokens, kMostPlayedTokens));
  return {};
}

constexpr Field kLabPlan[] = {
    used("batch", integer(1, kMostBatch), "sequences at once", into_question<&PlanQuestion::batch>)
        .by_default("1"),
    used("context", integer(1, kMostContext), "tokens of a sequence", into_question<&PlanQuestion::context>)
        .by_default("1024"),
    used("weights", {Kind::Text}, "type of the weights, such as Q4_K", into_question<&PlanQuestion::weights>)
        .by_default("the file's own"),
    used("device", {Kind::Text}, "a named device, such as H200", into_question<&PlanQuestion::device>)
        .by_default("this machine"),
};

constexpr Field kLabSchemes[] = {
    required(used("requests", {Kind::List},
                  "rows of [seconds, prompt tokens, answer tokens], at most 256 and 32,768 tokens in all",
                  read_recorded_list)),
};

// The model that the request means, where it has a planner.
const ServedModel* planned_model(const Call& call, const ParsedRequest& parsed, Problem& problem) {
  const ServedModel* model = choose_model(call, parsed, problem);
  if (!problem && model->planner == nullptr)
    problem = ApiError{.status = 501,
                       .type = "invalid_request_error",
                       .code = "not_supported",
                       .message = fmt::format("'{}' has no planner", model->id)};
  return model;
}

Reply answer_of(const Result<json::object>& result) {
  if (!result) return to_api_error(result.error());
  return Answer{.body = write_json(*result)};
}

}  // namespace

const RequestSchema& lab_plan_schema() {
  static const RequestSchema schema{"LabPlanRequest", {kLabPlan, model_field()}};
  return schema;
}
const RequestSchema& lab_schemes_schema() {
  static const RequestSchema schema{"LabSchemesRequest", {kLabSchemes, model_field()}};
  return schema;
}

Reply lab_plan(const Call& call) {
  ParsedRequest parsed;
  Problem problem = read_body(call, lab_plan_schema(), parsed);
  if (problem) return *problem;
  const ServedModel* model = planned_model(call, parsed, problem);
  if (problem) return *problem;
  return answer_of(model->planner->plan(parsed.question));
}

Reply lab_schemes(const Call& call) {
  ParsedRequest parsed;
  Problem problem = read_body(call, lab_schemes_schema(), parsed);
  if (problem) return *problem;
  const ServedModel* model = planned_model(call, parsed, problem);
  if (problem) return *problem;
  return answer_of(model->planner->play(parsed.recorded, call.interrupt));
}

}  // namespace sluice::api
