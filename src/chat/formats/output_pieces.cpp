#include "chat/formats/output_pieces.h"

namespace sluice::chat {

std::vector<std::string> ToolSet::types_of(std::string_view tool, std::string_view argument) const {
  const auto found = schemas_.find(tool);
  if (found == schemas_.end()) return {};
  const json::object* schema = found->second.if_object();
  const json::value* properties = schema == nullptr ? nullptr : schema->if_contains("properties");
  const json::object* named = properties == nullptr ? nullptr : properties->if_object();
  const json::value* property = named == nullptr ? nullptr : named->if_contains(argument);
  const json::object* object = property == nullptr ? nullptr : property->if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  std::vector<std::string> types;
  if (type == nullptr) return types;
  if (const json::string* one = type->if_string()) types.emplace_back(*one);
  if (const json::array* several = type->if_array())
    for (const json::value& item : *several)
      if (item.is_string()) types.emplace_back(item.get_string());
  return types;
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
