// What a model may write where it calls tools, as a structural tag of xgrammar: made from the same row of the table of
// formats that the parser reads calls by, so that whatever the tag allows is a call to the parser.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "chat/formats/output_format.h"
#include "chat/formats/output_pieces.h"

namespace sluice::chat {

struct CallRules {
  bool required = false;  // calls alone, from the first token; else text is free until a call begins
  bool one = false;       // at most one call
};

// What the tag lets pass and the schema of a tool does not.
struct LooseKeyword {
  std::string tool, keyword, path;
};

struct ToolTag {
  json::value tag;  // {"type": "structural_tag", "format": {...}}
  std::vector<LooseKeyword> loose;
};

// REQUIRES: tools are there.
ToolTag make_tool_tag(const ToolFormat& format, const ToolSet& tools, CallRules rules);

}  // namespace sluice::chat
