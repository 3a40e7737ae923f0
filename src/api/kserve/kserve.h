// What clients of KServe's second protocol and of Triton's generate extension call, beside the server's own routes of
// health and of loading models.
#pragma once

#include "api/core/service.h"
#include "api/fields/field_table.h"

namespace sluice::api {

const RequestSchema& kserve_generate_schema();
Reply kserve_server(const Call& call);
Reply kserve_model(const Call& call);
Reply kserve_generate(const Call& call);
Reply kserve_generate_stream(const Call& call);

}  // namespace sluice::api
