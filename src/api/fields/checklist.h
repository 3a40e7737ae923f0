// The documentation's lists of fields, made from the tables that the readers use.
#pragma once

#include <string>

namespace sluice::api {

// Markdown: every operation with its fields, and what becomes of each.
std::string field_checklist();

}  // namespace sluice::api
