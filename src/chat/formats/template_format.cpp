#include "chat/formats/template_format.h"

#include <algorithm>
#include <array>
#include <optional>

#include "chat/formats/derived_format.h"
#include "chat/formats/output_parser.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

namespace {

constexpr std::array<std::string_view, 2> kNames = {"probe_alpha", "probe_beta"};
constexpr std::array<std::string_view, 2> kKeys = {"probe_text", "probe_count"};

json::object probe_arguments() {
  return {{"probe_text", "probe_value"}, {"probe_count", 7}};
}

json::array probe_tools() {
  json::array tools;
  for (const std::string_view name : kNames)
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", json::string(name)},
                       {"description", "probe"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties",
                          {{"probe_text", {{"type", "string"}, {"description", "probe"}}},
                           {"probe_count", {{"type", "integer"}, {"description", "probe"}}}}},
                         {"required", {"probe_text"}}}}}}});
  return tools;
}

ToolSet probe_set() {
  ToolSet set;
  for (const json::value& tool : probe_tools()) {
    const json::object& function = tool.at("function").as_object();
    set.add(std::string(function.at("name").as_string()), function.at("parameters"));
  }
  return set;
}

// Templates differ in the ids that they accept or write.
enum class ProbeForm : uint8_t {
  Plain,    // ids of 9 letters, arguments as objects
  Numbered  // ids that name the function, arguments as text
};

json::array probe_calls(size_t count, ProbeForm form) {
  json::array calls;
  for (size_t i = 0; i < count; ++i) {
    const std::string name(kNames[i]), number = std::to_string(i);
    calls.push_back(
        {{"id", form == ProbeForm::Plain ? "call0000" + number : "functions." + name + ":" + number},
         {"type", "function"},
         {"function",
          {{"name", name},
           {"arguments", form == ProbeForm::Plain ? json::value(probe_arguments())
                                                  : json::value(write_json(probe_arguments()))}}}});
  }
  return calls;
}

struct Conversation {
  json::array calls = {};  // of the assistant; empty: it has not answered yet
  bool with_tools = true;
};

std::optional<std::string> render(const ChatTemplate& chat_template, const Conversation& conversation) {
  json::array messages{{{"role", "user"}, {"content", "probe question"}}};
  if (!conversation.calls.empty())
    messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", conversation.calls}});
  json::object variables{{"messages", std::move(messages)},
                         {"add_generation_prompt", conversation.calls.empty()},
                         {"bos_token", ""},
                         {"eos_token", ""}};
  if (conversation.with_tools) variables["tools"] = probe_tools();
  const Result<Rendering> rendering = chat_template.render(variables);
  if (!rendering) return std::nullopt;
  return rendering->text();
}

// What the assistant wrote, behind what a prompt for its answer has too.
struct Turn {
  std::string prompt, text;
  size_t calls = 0;
};

// The part that two texts begin with, without a mark that they share the start of alone.
size_t shared_start(std::string_view a, std::string_view b) {
  const auto [end, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const std::string_view shared(a.begin(), end);
  const size_t opened = shared.find_last_of("<[");
  const bool is_open =
      opened != std::string_view::npos && shared.find_first_of(">]", opened) == std::string_view::npos;
  return is_open ? opened : shared.size();
}

std::optional<Turn> render_turn(const ChatTemplate& chat_template, size_t calls, ProbeForm form) {
  const std::optional<std::string> prompt = render(chat_template, {});
  const std::optional<std::string> whole = render(chat_template, {.calls = probe_calls(calls, form)});
  if (!prompt || !whole) return std::nullopt;
  const size_t shared = shared_start(*prompt, *whole);
  return Turn{prompt->substr(0, shared), whole->substr(shared), calls};
}

bool reads_back(const ToolFormat& tools, const std::optional<ReasoningFormat>& reasoning, const Turn& turn) {
  const bool opened = reasoning && opens_reasoning(turn.prompt, *reasoning);
  const ParsedOutput output = parse_output({.tools = tools, .reasoning = reasoning}, probe_set(),
                                           opened ? AnswerStart::Reasoning : AnswerStart::Fresh, turn.text);
  if (output.calls.size() != turn.calls) return false;
  for (size_t i = 0; i < turn.calls; ++i) {
    if (output.calls[i].name != kNames[i]) return false;
    const Result<json::value> arguments = parse_json(output.calls[i].arguments, "arguments");
    if (!arguments || *arguments != json::value(probe_arguments())) return false;
  }
  return true;
}

std::optional<ReasoningFormat> find_reasoning(std::string_view source) {
  for (const ReasoningFormat& format : reasoning_formats()) {
    const bool has_begin = source.find(trimmed(format.begin)) != std::string_view::npos;
    const bool has_end = source.find(trimmed(format.end)) != std::string_view::npos;
    if (has_begin && has_end) return format;
  }
  return std::nullopt;
}

const ToolFormat* find_by_turns(const ChatTemplate& chat_template,
                                const std::optional<ReasoningFormat>& reasoning) {
  for (const size_t calls : {size_t{2}, size_t{1}}) {
    for (const ProbeForm form : {ProbeForm::Plain, ProbeForm::Numbered}) {
      const std::optional<Turn> turn = render_turn(chat_template, calls, form);
      if (!turn) continue;
      for (const ToolFormat& format : tool_formats())
        if (reads_back(format, reasoning, *turn)) return &format;
    }
  }
  return nullptr;
}

// Of templates that write calls as no known format does.
std::optional<ToolFormat> find_by_marks(const ChatTemplate& chat_template,
                                        const std::optional<ReasoningFormat>& reasoning) {
  const std::optional<Turn> turn = render_turn(chat_template, kNames.size(), ProbeForm::Plain);
  if (!turn) return std::nullopt;
  std::optional<ToolFormat> format = derive_from_turn(
      turn->text, {.names = kNames, .keys = kKeys, .values = {std::string_view("probe_value"), "7"}});
  if (format && !reads_back(*format, reasoning, *turn)) format.reset();
  return format;
}

const ToolFormat* find_by_hint(std::string_view source) {
  for (const ToolFormat& format : tool_formats())
    if (!format.hint.empty() && source.find(format.hint) != std::string_view::npos) return &format;
  return nullptr;
}

}  // namespace

TemplateFormat derive_format(const ChatTemplate& chat_template) {
  TemplateFormat out;
  out.output.reasoning = find_reasoning(chat_template.source());
  const std::optional<std::string> with = render(chat_template, {});
  const std::optional<std::string> without = render(chat_template, {.with_tools = false});
  out.shows_tools = with && with->find(kNames[0]) != std::string::npos && with != without;
  const ToolFormat* format = find_by_turns(chat_template, out.output.reasoning);
  out.shows_calls = format != nullptr;
  if (format == nullptr) out.output.tools = find_by_marks(chat_template, out.output.reasoning);
  if (out.output.tools) out.shows_calls = true;
  if (format == nullptr && !out.output.tools) format = find_by_hint(chat_template.source());
  if (format != nullptr) out.output.tools = *format;
  if (format != nullptr && format->syntax == CallSyntax::Harmony) out.output.reasoning.reset();
  return out;
}

bool opens_reasoning(std::string_view prompt, const ReasoningFormat& format) {
  const std::string_view begin = trimmed(format.begin);
  const size_t at = prompt.rfind(begin);
  return at != std::string_view::npos && trimmed(prompt.substr(at + begin.size())).empty();
}

}  // namespace sluice::chat
