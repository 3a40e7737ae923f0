#include "chat/formats/output_pieces.h"

#include "chat/constraint/tool_schema.h"

namespace sluice::chat {

std::vector<std::string> ToolSet::types_of(std::string_view tool, std::string_view argument) const {
  const auto found = schemas_.find(tool);
  if (found == schemas_.end()) return {};
  const json::value& schema = resolve(found->second, found->second);
  const json::value* properties = keyword(schema, "properties");
  const json::value* property = properties == nullptr ? nullptr : keyword(*properties, argument);
  return property == nullptr ? std::vector<std::string>() : schema_types(found->second, *property);
}

void ParsedOutput::add(const OutputPiece& piece) {
  if (const auto* text = std::get_if<ContentPiece>(&piece)) {
    content += text->text;
  } else if (const auto* thought = std::get_if<ReasoningPiece>(&piece)) {
    reasoning += thought->text;
  } else if (const auto* call = std::get_if<CallPiece>(&piece)) {
    calls.push_back({call->name, call->id, {}});
  } else {
    const auto& part = std::get<ArgumentsPiece>(piece);
    calls[static_cast<size_t>(part.call)].arguments += part.text;
  }
}

}  // namespace sluice::chat
