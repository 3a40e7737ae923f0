// Parts of structural tags, and the arguments of a call as such parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/constraint/tool_tag.h"

namespace sluice::chat {

json::value exactly(std::string_view text);
json::value one_of(json::array parts);
json::value in_order(json::array parts);
json::value maybe(json::value part);
json::value pattern(std::string_view regex);
json::value free_text(const std::vector<std::string>& without);
// Strings of the value have none of the texts, unless the schema bounds their lengths.
json::value fits_schema(json::value schema, const std::vector<std::string>& without = {});
json::value between(std::string_view begin, json::value content, std::string_view end);

// A tool as those see it who write its arguments.
struct ToolArguments {
  const ToolFormat& format;
  const std::string& tool;
  const json::value& schema;
  std::vector<LooseKeyword>& loose;
};

// Between tags, each in the order of the schema.
json::value tagged_arguments(const ToolArguments& arguments);
// What stands between the brackets of {key:value} and (key=value): literals of the format's own, as an EBNF grammar.
json::value literal_arguments(const ToolArguments& arguments);

}  // namespace sluice::chat
