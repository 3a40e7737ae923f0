#include "chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "jinja/interpreter.h"
#include "jinja/syntax/parser.h"
#include "jinja/values/unicode.h"

namespace sluice::chat {

namespace {

using jinja::Map;
using jinja::Text;
using jinja::Value;

// A role is a word of the protocol and templates build control tokens from it; anything else in its place
// keeps the mark of user input.
bool is_plain_role(std::string_view role) {
  constexpr size_t kMostBytes = 64;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return role.size() <= kMostBytes && std::all_of(role.begin(), role.end(), is_word);
}

Value to_value(const json::value& value, bool user, size_t depth) {
  if (depth > jinja::Limits{}.depth) jinja::raise_limit("nesting of variables", jinja::Limits{}.depth);
  switch (value.kind()) {
    case json::kind::null:
      return Value();
    case json::kind::bool_:
      return Value(value.get_bool());
    case json::kind::int64:
      return Value(value.get_int64());
    case json::kind::uint64:
      return Value(static_cast<double>(value.get_uint64()));
    case json::kind::double_:
      return Value(value.get_double());
    case json::kind::string:
      return jinja::make_string(Text(std::string(value.get_string()), user));
    case json::kind::array: {
      std::vector<Value> items;
      for (const json::value& item : value.get_array()) items.push_back(to_value(item, user, depth + 1));
      return jinja::make_list(std::move(items));
    }
    case json::kind::object:
      break;
  }
  std::vector<Map::Entry> entries;
  for (const auto& member : value.get_object()) {
    const std::string key(member.key());
    entries.push_back({jinja::make_string(Text(key, user)), to_value(member.value(), user, depth + 1)});
  }
  return jinja::make_map(std::move(entries));
}

// Messages are user input but for their roles.
Value to_messages(const json::value& messages) {
  const json::array* array = messages.if_array();
  if (array == nullptr) return to_value(messages, true, 0);
  std::vector<Value> items;
  for (const json::value& message : *array) {
    Value value = to_value(message, true, 1);
    const json::object* object = message.if_object();
    const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
    if (role != nullptr && role->is_string() && is_plain_role(role->get_string())) {
      std::vector<Map::Entry> entries = value.map().entries;
      for (Map::Entry& entry : entries) {
        if (entry.key.bytes() == "role") entry.value = to_value(*role, false, 1);
      }
      value = jinja::make_map(std::move(entries));
    }
    items.push_back(std::move(value));
  }
  return jinja::make_list(std::move(items));
}

std::tm clock_of(const RenderOptions& options) {
  std::tm broken{};
  if (options.now) {
    const std::time_t seconds = options.now->time_since_epoch().count();
    gmtime_r(&seconds, &broken);
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &broken);
  }
  return broken;
}

Rendering to_rendering(const Text& text) {
  Rendering rendering;
  text.for_runs({0, text.size()}, [&](jinja::ByteRange run, bool user) {
    rendering.spans.push_back({text.bytes().substr(run.begin, run.end - run.begin), user});
  });
  return rendering;
}

Error to_error(const jinja::TemplateError& error, int line) {
  if (error.verbatim) return {error.code, error.message};
  return {error.code, fmt::format("template line {}: {}", line, error.message)};
}

}  // namespace

struct ChatTemplate::Parsed {
  std::string source;
  jinja::SyntaxTree tree;
};

std::string_view ChatTemplate::source() const {
  return parsed_->source;
}

std::string Rendering::text() const {
  std::string whole;
  for (const TemplateSpan& span : spans) whole += span.text;
  return whole;
}

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  int line = 1;
  const size_t invalid = jinja::first_invalid_utf8(source);
  if (invalid < source.size()) {
    return Error{ErrorCode::Corrupt, fmt::format("template is not valid UTF-8 at byte {}", invalid)};
  }
  try {
    ChatTemplate made;
    jinja::SyntaxTree tree = jinja::parse_template(source, jinja::Limits{}, line);
    made.parsed_ = std::make_shared<const Parsed>(Parsed{std::move(source), std::move(tree)});
    return made;
  } catch (const jinja::TemplateError& error) {
    return to_error(error, line);
  }
}

Result<Rendering> ChatTemplate::render(const json::object& variables, const RenderOptions& options) const {
  int line = 1;
  try {
    jinja::Runtime runtime(jinja::Limits{}, clock_of(options), options.interrupt);
    const std::set<std::string_view> user_variables(options.user_variables.begin(),
                                                    options.user_variables.end());
    jinja::Interpreter interpreter(parsed_->tree, runtime);
    for (const auto& variable : variables) {
      const std::string_view name = variable.key();
      const bool user = name == "tools" || name == "documents" || user_variables.contains(name);
      interpreter.define(
          name, name == "messages" ? to_messages(variable.value()) : to_value(variable.value(), user, 0));
    }
    return to_rendering(interpreter.run(line));
  } catch (const jinja::TemplateError& error) {
    return to_error(error, line);
  }
}

}  // namespace sluice::chat
