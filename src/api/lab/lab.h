// What the page's Lab tab asks: predictions of the planner, and schemes played from a recorded trace.
#pragma once

#include "api/core/service.h"

namespace sluice::api {

const RequestSchema& lab_plan_schema();
const RequestSchema& lab_schemes_schema();

Reply lab_plan(const Call& call);
Reply lab_schemes(const Call& call);

}  // namespace sluice::api
