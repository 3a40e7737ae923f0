// Places of a lowered schema where any JSON may stand.
#pragma once

#include "base/json.h"

namespace sluice::grammar {

// xgrammar's own rule of any JSON has a blank behind each comma where blanks are not free. Each place that allows any value
// (an empty schema) becomes a reference to a definition that says the same of types, arrays and objects.
// REQUIRES: what lower_schema() gives.
void spell_out_free_values(json::value& schema);

}  // namespace sluice::grammar
