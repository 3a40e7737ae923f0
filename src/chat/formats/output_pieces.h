// What an answer consists of, in the order in which the model wrote it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace sluice::chat {

struct ContentPiece {
  std::string text;
};
struct ReasoningPiece {
  std::string text;
};
// Calls are numbered from 0; the arguments of one come before the next begins.
struct CallPiece {
  int call = 0;
  std::string name;
  std::string id;  // as the model wrote it; empty: it wrote none
};
// A part of the arguments of a call: all parts together are its JSON text.
struct ArgumentsPiece {
  int call = 0;
  std::string text;
};
using OutputPiece = std::variant<ContentPiece, ReasoningPiece, CallPiece, ArgumentsPiece>;

// The tools of a request by name, each with the JSON schema of its arguments.
class ToolSet {
 public:
  void add(std::string name, json::value parameters) {
    schemas_.insert_or_assign(std::move(name), std::move(parameters));
  }
  bool contains(std::string_view name) const { return schemas_.contains(name); }
  bool empty() const { return schemas_.empty(); }
  // Names of types that the schema allows for an argument; empty where it says nothing.
  std::vector<std::string> types_of(std::string_view tool, std::string_view argument) const;
  const std::map<std::string, json::value, std::less<>>& schemas() const { return schemas_; }

 private:
  std::map<std::string, json::value, std::less<>> schemas_;
};

// An answer put together.
struct ToolCall {
  std::string name, id, arguments;
  bool operator==(const ToolCall&) const = default;
};
struct ParsedOutput {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  bool operator==(const ParsedOutput&) const = default;

  void add(const OutputPiece& piece);
};

}  // namespace sluice::chat
