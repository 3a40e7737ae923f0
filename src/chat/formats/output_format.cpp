#include "chat/formats/output_format.h"

#include <algorithm>

namespace sluice::chat {

namespace {

ToolFormat json_calls(std::string name, CallSyntax syntax, std::string begin, std::string end) {
  return {.name = std::move(name),
          .syntax = syntax,
          .call_begin = std::move(begin),
          .call_end = std::move(end),
          .name_key = "name",
          .arguments_key = "arguments"};
}

std::vector<ToolFormat> json_formats() {
  ToolFormat command_r = json_calls("command-r", CallSyntax::JsonList, "<|START_ACTION|>", "<|END_ACTION|>");
  command_r.name_key = "tool_name";
  command_r.arguments_key = "parameters";
  ToolFormat granite = json_calls("granite", CallSyntax::JsonList, "<|tool_call|>", "");
  granite.hint = "<|tool_call|>";
  ToolFormat phi = json_calls("phi-4", CallSyntax::JsonList, "<|tool_call|>", "<|/tool_call|>");
  phi.hint = "<|/tool_call|>";
  ToolFormat functools = json_calls("phi-4-mini", CallSyntax::JsonList, "functools", "");
  functools.hint = "functools";
  ToolFormat hermes = json_calls("hermes", CallSyntax::JsonObject, "<tool_call>\n", "\n</tool_call>");
  hermes.hint = "<tool_call>";
  ToolFormat apertus = json_calls("apertus", CallSyntax::JsonKeyed, "<|tools_prefix|>", "<|tools_suffix|>");
  ToolFormat llama = json_calls("llama-3", CallSyntax::JsonObject, "", "");
  llama.arguments_key = "parameters";
  llama.bare_begin = "<|python_tag|>";
  ToolFormat gigachat =
      json_calls("gigachat", CallSyntax::JsonObject, "<|message_sep|>\n\nfunction call<|role_sep|>\n", "");
  return {std::move(hermes),
          json_calls("mistral-list", CallSyntax::JsonList, "[TOOL_CALLS]", ""),
          json_calls("nemotron", CallSyntax::JsonList, "<TOOLCALL>", "</TOOLCALL>"),
          json_calls("apriel", CallSyntax::JsonList, "<tool_calls>", "</tool_calls>"),
          std::move(command_r),
          std::move(phi),
          std::move(granite),
          std::move(functools),
          std::move(apertus),
          std::move(gigachat),
          std::move(llama)};
}

std::vector<ToolFormat> named_json_formats() {
  return {{.name = "deepseek-v3",
           .syntax = CallSyntax::NameJson,
           .section_begin = "<｜tool▁calls▁begin｜>",
           .section_end = "<｜tool▁calls▁end｜>",
           .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
           .call_end = "\n```<｜tool▁call▁end｜>",
           .name_end = "\n```json\n",
           .hint = "'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'"},
          {.name = "deepseek-v3.1",
           .syntax = CallSyntax::NameJson,
           .section_begin = "<｜tool▁calls▁begin｜>",
           .section_end = "<｜tool▁calls▁end｜>",
           .call_begin = "<｜tool▁call▁begin｜>",
           .call_end = "<｜tool▁call▁end｜>",
           .name_end = "<｜tool▁sep｜>"},
          {.name = "kimi-k2",
           .syntax = CallSyntax::NameJson,
           .section_begin = "<|tool_calls_section_begin|>",
           .section_end = "<|tool_calls_section_end|>",
           .call_begin = "<|tool_call_begin|>",
           .call_end = "<|tool_call_end|>",
           .name_end = "<|tool_call_argument_begin|>",
           .id_in_name = true,
           .hint = "<|tool_call_argument_begin|>"},
          {.name = "mistral",
           .syntax = CallSyntax::NameJson,
           .call_begin = "[TOOL_CALLS]",
           .name_end = "[ARGS]",
           .id_begin = "[CALL_ID]"},
          {.name = "harmony", .syntax = CallSyntax::Harmony, .hint = "<|channel|>"}};
}

std::vector<ToolFormat> tagged_formats() {
  ToolFormat qwen{.name = "qwen3-coder",
                  .syntax = CallSyntax::NameTagged,
                  .call_begin = "<tool_call>\n",
                  .call_end = "\n</tool_call>",
                  .name_begin = "<function=",
                  .name_end = ">\n",
                  .key_begin = "<parameter=",
                  .key_end = ">",
                  .value_end = "</parameter>\n",
                  .arguments_end = "</function>",
                  .values_have_lines = true,
                  .hint = "<function="};
  ToolFormat seed = qwen;
  seed.name = "seed-oss";
  seed.call_begin = "<seed:tool_call>\n";
  seed.call_end = "\n</seed:tool_call>";
  seed.values_have_lines = false;
  seed.hint.clear();
  ToolFormat glm{.name = "glm",
                 .syntax = CallSyntax::NameTagged,
                 .call_begin = "<tool_call>",
                 .call_end = "</tool_call>",
                 .name_end = "\n",
                 .key_begin = "<arg_key>",
                 .key_end = "</arg_key>\n",
                 .value_begin = "<arg_value>",
                 .value_end = "</arg_value>\n",
                 .hint = "<arg_key>"};
  ToolFormat minimax{.name = "minimax",
                     .syntax = CallSyntax::NameTagged,
                     .section_begin = "<minimax:tool_call>\n",
                     .section_end = "</minimax:tool_call>",
                     .call_begin = "<invoke name=\"",
                     .call_end = "</invoke>\n",
                     .name_end = "\">\n",
                     .key_begin = "<parameter name=\"",
                     .key_end = "\">",
                     .value_end = "</parameter>\n"};
  ToolFormat deepseek{.name = "deepseek-v3.2",
                      .syntax = CallSyntax::NameTagged,
                      .section_begin = "<｜DSML｜function_calls>\n",
                      .section_end = "</｜DSML｜function_calls>",
                      .call_begin = "<｜DSML｜invoke name=\"",
                      .call_end = "</｜DSML｜invoke>\n",
                      .name_end = "\">\n",
                      .key_begin = "<｜DSML｜parameter name=\"",
                      .key_end = "\" string=\"true\">",
                      .key_end_json = "\" string=\"false\">",
                      .value_end = "</｜DSML｜parameter>\n",
                      .hint = "｜DSML｜"};
  ToolFormat deepseek4 = deepseek;
  deepseek4.name = "deepseek-v4";
  deepseek4.section_begin = "<｜DSML｜tool_calls>\n";
  deepseek4.section_end = "</｜DSML｜tool_calls>";
  deepseek4.hint.clear();
  ToolFormat step{.name = "step-3",
                  .syntax = CallSyntax::NameTagged,
                  .section_begin = "<｜tool_calls_begin｜>",
                  .section_end = "<｜tool_calls_end｜>",
                  .call_begin = "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
                  .call_end = "</steptml:invoke><｜tool_call_end｜>",
                  .name_end = "\">",
                  .key_begin = "<steptml:parameter name=\"",
                  .key_end = "\">",
                  .value_end = "</steptml:parameter>",
                  .hint = "steptml:"};
  return {std::move(qwen),     std::move(seed),      std::move(glm), std::move(minimax),
          std::move(deepseek), std::move(deepseek4), std::move(step)};
}

std::vector<ToolFormat> other_formats() {
  return {
      {.name = "gemma-4",
       .syntax = CallSyntax::NameWords,
       .call_begin = "<|tool_call>call:",
       .call_end = "<tool_call|>",
       .quote = "<|\"|>"},
      {.name = "lfm2",
       .syntax = CallSyntax::Python,
       .call_begin = "<|tool_call_start|>",
       .call_end = "<|tool_call_end|>",
       .hint = "<|tool_list_start|>"},
      {.name = "llama-4", .syntax = CallSyntax::Python, .hint = "[func_name1(params_name1=params_value1"}};
}

// Hints are looked for in this order: those that other formats' templates have too come last.
std::vector<ToolFormat> make_formats() {
  std::vector<ToolFormat> all;
  for (auto group : {tagged_formats(), named_json_formats(), other_formats(), json_formats()})
    for (ToolFormat& format : group) all.push_back(std::move(format));
  return all;
}

void add_mark(std::string_view text, std::vector<std::string>& out) {
  if (!text.empty()) out.emplace_back(text);
}

}  // namespace

std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> formats = make_formats();
  return formats;
}

const ToolFormat* find_tool_format(std::string_view name) {
  for (const ToolFormat& format : tool_formats())
    if (format.name == name) return &format;
  return nullptr;
}

std::span<const ReasoningFormat> reasoning_formats() {
  static const std::vector<ReasoningFormat> formats = {
      {"<think>\n", "\n</think>\n\n"},
      {"<seed:think>", "</seed:think>"},
      {"[THINK]", "[/THINK]"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"<|channel>thought\n", "\n<channel|>"},
      {"<|inner_prefix|>", "<|inner_suffix|>"},
      {"<thinking>", "</thinking>"},
      {"<reasoning>", "</reasoning>"},
  };
  return formats;
}

std::vector<std::string> marks_of(const OutputFormat& format) {
  std::vector<std::string> marks;
  if (format.reasoning) {
    add_mark(format.reasoning->begin, marks);
    add_mark(format.reasoning->end, marks);
  }
  if (!format.tools) return marks;
  const ToolFormat& tools = *format.tools;
  for (const std::string* mark :
       {&tools.section_begin, &tools.section_end, &tools.call_begin, &tools.call_end, &tools.name_begin,
        &tools.name_end, &tools.id_begin, &tools.key_begin, &tools.key_end, &tools.key_end_json,
        &tools.value_begin, &tools.value_end, &tools.arguments_end, &tools.quote, &tools.bare_begin})
    add_mark(*mark, marks);
  if (tools.syntax == CallSyntax::Harmony)
    for (const char* mark :
         {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"})
      add_mark(mark, marks);
  return marks;
}

}  // namespace sluice::chat
