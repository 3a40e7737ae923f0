// How models write tool calls and reasoning: one table of formats, whose rows are plain data. The parser of answers, the
// constraint of a call and the choice of tokens that stay visible all go by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// How the name and the arguments of a call are written between the marks around it.
enum class CallSyntax : uint8_t {
  JsonObject,  // {"name": NAME, "arguments": {...}}, the keys in any order
  JsonList,    // a list of such objects
  JsonKeyed,   // a list of {NAME: {...}}
  NameJson,    // NAME, then the arguments as a JSON object
  NameTagged,  // NAME, then each argument between tags
  NameWords,   // NAME{key:value}, strings between ToolFormat::quote
  Python,      // [NAME(key=value), ...]
  Harmony,     // messages with channels and recipients; the marks are the syntax's own
};

// Text as models are trained to write it; a parser takes any run of spaces where a mark begins or ends with one.
struct ToolFormat {
  std::string name;  // of the format: "hermes"
  CallSyntax syntax = CallSyntax::JsonObject;
  std::string section_begin = {}, section_end = {};  // around all calls; empty: there is none
  std::string call_begin = {}, call_end = {};        // around one call, or a list of them
  std::string name_key = {}, arguments_key = {};     // of JSON objects
  std::string name_begin = {}, name_end = {};        // of the syntaxes that start with a name
  std::string id_begin = {};                         // between name and name_end: a call's id follows
  std::string key_begin = {}, key_end = {};          // of tagged arguments
  std::string key_end_json =
      {};  // as key_end, before a value that is JSON; those of key_end are strings then
  std::string value_begin = {}, value_end = {}, arguments_end = {};
  std::string quote = {};          // of words
  std::string bare_begin = {};     // may stand before a bare call
  bool values_have_lines = false;  // a line break on either side of a tagged value is not part of it
  bool id_in_name = false;         // "functions.NAME:0" is the id
  std::string hint = {};           // a template that writes no calls but has this text uses the format
  // Without a mark before it: a call is recognised at the start of an answer alone, by a name of the request's tools.
  bool is_bare() const {
    return syntax != CallSyntax::Harmony && section_begin.empty() && call_begin.empty();
  }
};

struct ReasoningFormat {
  std::string begin, end;
  bool operator==(const ReasoningFormat&) const = default;
};

// What an answer of a model may hold besides its text.
struct OutputFormat {
  std::optional<ToolFormat> tools;
  std::optional<ReasoningFormat> reasoning;

  bool is_plain() const { return !tools && !reasoning; }
};

std::span<const ToolFormat> tool_formats();
const ToolFormat* find_tool_format(std::string_view name);  // nullptr where there is none
std::span<const ReasoningFormat> reasoning_formats();

// The marks of a format: texts that may be control tokens of a vocabulary and that a parser must see.
std::vector<std::string> marks_of(const OutputFormat& format);

}  // namespace sluice::chat
