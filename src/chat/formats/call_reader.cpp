#include "chat/formats/call_reader.h"

#include "base/check.h"

namespace sluice::chat {

void CallSink::add_arguments(std::string text) {
  if (text.empty()) return;
  const int call = calls_ - 1;
  if (!out_.empty()) {
    if (auto* last = std::get_if<ArgumentsPiece>(&out_.back()); last != nullptr && last->call == call) {
      last->text += text;
      return;
    }
  }
  out_.emplace_back(ArgumentsPiece{call, std::move(text)});
}

std::unique_ptr<CallReader> make_call_reader(const ToolFormat& format, const ToolSet& tools) {
  switch (format.syntax) {
    case CallSyntax::JsonObject:
    case CallSyntax::JsonList:
    case CallSyntax::JsonKeyed:
      return make_json_reader(format, tools);
    case CallSyntax::NameJson:
    case CallSyntax::NameTagged:
    case CallSyntax::NameWords:
      return make_named_reader(format, tools);
    case CallSyntax::Python:
      return make_python_reader(format, tools);
    case CallSyntax::Harmony:
      break;
  }
  SLUICE_CHECK(format.syntax != CallSyntax::Harmony);
  return nullptr;
}

}  // namespace sluice::chat
