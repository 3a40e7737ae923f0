// Tools of a request: their definitions and how they are to be used, in the forms of all dialects.
#pragma once

#include "api/fields/field_table.h"

namespace sluice::api {

// -- read() of fields

// {type: function, function: {name, description, parameters, strict}}, or flat as Responses have it. Types that the
// server does not run are left out: clients send them beside functions.
Status read_tools(const json::value& value, ParsedRequest& parsed);
// "none", "auto", "required", {type: function, ...} or {type: allowed_tools, ...}.
Status read_tool_choice(const json::value& value, ParsedRequest& parsed);
Status read_parallel_tool_calls(const json::value& value, ParsedRequest& parsed);
// Anthropic's: {name, description, input_schema}, and {type: auto, any, tool or none, disable_parallel_tool_use}.
Status read_anthropic_tools(const json::value& value, ParsedRequest& parsed);
Status read_anthropic_tool_choice(const json::value& value, ParsedRequest& parsed);

// What must hold once all fields are read: a tool that must be called is one of those given.
Problem check_tools(const ParsedRequest& parsed);

}  // namespace sluice::api
