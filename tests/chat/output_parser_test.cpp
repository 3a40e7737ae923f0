// Answers in every format: what is read, and that cuts change nothing.
#include "chat/formats/output_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace sluice::chat {
namespace {

struct Transcript {
  std::string format;  // of tools
  std::string text;
  ParsedOutput expected;
  AnswerStart start = AnswerStart::Fresh;
};

ToolSet weather_tools() {
  ToolSet set;
  set.add("get_weather", {{"type", "object"},
                          {"properties",
                           {{"city", {{"type", "string"}}},
                            {"days", {{"type", "integer"}}},
                            {"exact", {{"type", "boolean"}}},
                            {"tags", {{"type", "array"}}}}}});
  set.add("add",
          {{"type", "object"}, {"properties", {{"a", {{"type", "number"}}}, {"b", {{"type", "number"}}}}}});
  return set;
}

OutputFormat format_of(const std::string& name) {
  const ToolFormat* tools = find_tool_format(name);
  EXPECT_NE(tools, nullptr) << name;
  OutputFormat format;
  format.tools = *tools;
  if (tools->syntax != CallSyntax::Harmony) format.reasoning = reasoning_formats().front();
  return format;
}

ParsedOutput read_in_parts(const Transcript& transcript, const std::vector<size_t>& cuts) {
  const auto parser = make_output_parser(std::make_shared<OutputFormat>(format_of(transcript.format)),
                                         std::make_shared<ToolSet>(weather_tools()), transcript.start);
  ParsedOutput whole;
  size_t begin = 0;
  const auto add = [&](const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) whole.add(piece);
  };
  const std::string_view text = transcript.text;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    std::vector<OutputPiece> pieces;
    parser->push(text.substr(begin, end - begin), pieces);
    add(pieces);
    begin = end;
  }
  std::vector<OutputPiece> pieces;
  parser->finish(pieces);
  add(pieces);
  return whole;
}

std::string shown(const ParsedOutput& output) {
  std::string text = "reasoning: " + output.reasoning + "\ncontent: " + output.content;
  for (const ToolCall& call : output.calls) text += "\n" + call.id + " " + call.name + " " + call.arguments;
  return text;
}

const std::string kCity = R"({"city": "Zürich \"old\" town", "days": 3})";
const std::string kSum = R"({"a": 1, "b": 2.5})";

ParsedOutput two_calls(std::string content = "Let me look: ☂", std::string reasoning = "häm…") {
  return {std::move(content), std::move(reasoning), {{"get_weather", "", kCity}, {"add", "", kSum}}};
}

const std::string kThought = "<think>\nhäm…\n</think>\n\n", kSaid = "Let me look: ☂\n\n";

std::vector<Transcript> json_transcripts() {
  const std::string first = R"({"name": "get_weather", "arguments": )" + kCity + "}";
  const std::string second = R"({"arguments": )" + kSum + R"(, "name": "add"})";
  const std::string list = "[" + first + ", " + second + "]";
  const std::string before = kThought + kSaid;
  std::vector<Transcript> all = {
      {"hermes",
       before + "<tool_call>\n" + first + "\n</tool_call>\n<tool_call>\n" + second + "\n</tool_call>",
       two_calls()},
      {"mistral-list", before + "[TOOL_CALLS]" + list, two_calls()},
      {"nemotron", before + "<TOOLCALL>" + list + "</TOOLCALL>", two_calls()},
      {"apriel", before + "<tool_calls>" + list + "</tool_calls>", two_calls()},
      {"phi-4", before + "<|tool_call|>" + list + "<|/tool_call|>", two_calls()},
      {"granite", before + "<|tool_call|>" + list, two_calls()},
      {"phi-4-mini", before + "functools" + list, two_calls()},
      {"gigachat",
       before + "<|message_sep|>\n\nfunction call<|role_sep|>\n" + first,
       {"Let me look: ☂", "häm…", {{"get_weather", "", kCity}}}},
      {"apertus",
       before + R"(<|tools_prefix|>[{"get_weather": )" + kCity + R"(}, {"add": )" + kSum +
           "}]<|tools_suffix|>",
       two_calls()},
      {"command-r",
       before + R"(<|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": )" +
           kCity +
           R"(},
    {"tool_call_id": "1", "tool_name": "add", "parameters": )" +
           kSum + "}\n]<|END_ACTION|>",
       two_calls()},
      {"llama-3", R"( {"name": "add", "parameters": )" + kSum + "}", {"", "", {{"add", "", kSum}}}},
      {"llama-3",
       R"(<|python_tag|>{"type": "function", "name": "add", "parameters": )" + kSum + "}",
       {"", "", {{"add", "", kSum}}}},
  };
  all[9].expected.calls[0].id = "0";
  all[9].expected.calls[1].id = "1";
  return all;
}

std::vector<Transcript> named_transcripts() {
  const std::string before = kThought + kSaid;
  Transcript kimi{"kimi-k2",
                  before +
                      "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                      "<|tool_call_argument_begin|>" +
                      kCity +
                      "<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>" +
                      kSum + "<|tool_call_end|><|tool_calls_section_end|>",
                  two_calls()};
  kimi.expected.calls[0].id = "functions.get_weather:0";
  kimi.expected.calls[1].id = "functions.add:1";
  Transcript mistral{
      "mistral",
      before + "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" + kCity + "[TOOL_CALLS]add[ARGS]" + kSum,
      two_calls()};
  mistral.expected.calls[0].id = "abcdefghi";
  return {
      kimi,
      mistral,
      {"deepseek-v3.1",
       before + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + kCity +
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>" + kSum +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       two_calls()},
      {"deepseek-v3",
       before + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" +
           kCity + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n" +
           kSum + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       two_calls()},
      {"harmony",
       "<|channel|>analysis<|message|>häm…<|end|><|start|>assistant<|channel|>commentary<|message|>Let me "
       "look: ☂"
       "<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>" +
           kCity + "<|call|><|start|>assistant to=functions.add<|channel|>commentary json<|message|>" + kSum +
           "<|call|>",
       two_calls()},
      {"gemma-4",
       before + R"(<|tool_call>call:get_weather{city:<|"|>Zürich "old" town<|"|>,days:3}<tool_call|>)" +
           R"(<|tool_call>call:add{a:1,b:2.5}<tool_call|>)",
       two_calls()},
      {"lfm2",
       before + R"(<|tool_call_start|>[get_weather(city="Zürich \"old\" town", days=3), add(a=1, b=2.5)])" +
           "<|tool_call_end|>",
       two_calls()},
      {"llama-4", R"([get_weather(city='Zürich "old" town', days=3), add(a=1, b=2.5)])", two_calls("", "")},
  };
}

std::vector<Transcript> tagged_transcripts() {
  const std::string before = kThought + kSaid, city = R"(Zürich "old" town)";
  const auto invoke = [&](const std::string& prefix) {
    return "<" + prefix + "invoke name=\"get_weather\">\n<" + prefix + "parameter name=\"city\">" + city +
           "</" + prefix + "parameter>\n<" + prefix + "parameter name=\"days\">3</" + prefix +
           "parameter>\n</" + prefix + "invoke>\n<" + prefix + "invoke name=\"add\">\n<" + prefix +
           "parameter name=\"a\">1</" + prefix + "parameter>\n<" + prefix + "parameter name=\"b\">2.5</" +
           prefix + "parameter>\n</" + prefix + "invoke>\n";
  };
  const std::string dsml =
      "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">" + city +
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" "
      "string=\"false\">2.5</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
  const auto lines = [&](const std::string& tag, const std::string& line) {
    return "<" + tag + ">\n<function=get_weather>\n<parameter=city>" + line + city + line +
           "</parameter>\n<parameter=days>" + line + "3" + line + "</parameter>\n</function>\n</" + tag +
           ">\n<" + tag + ">\n<function=add>\n<parameter=a>" + line + "1" + line +
           "</parameter>\n<parameter=b>" + line + "2.5" + line + "</parameter>\n</function>\n</" + tag + ">";
  };
  const auto step = [&](const std::string& name, const std::string& parameters) {
    return "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"" + name + "\">" + parameters +
           "</steptml:invoke><｜tool_call_end｜>";
  };
  return {
      {"qwen3-coder", before + lines("tool_call", "\n"), two_calls()},
      {"seed-oss", before + lines("seed:tool_call", ""), two_calls()},
      {"glm",
       before + "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>" + city +
           "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</"
           "tool_call><tool_call>add<arg_key>a"
           "</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>2.5</arg_value></tool_call>",
       two_calls()},
      {"minimax", before + "<minimax:tool_call>\n" + invoke("") + "</minimax:tool_call>", two_calls()},
      {"deepseek-v3.2", before + "<｜DSML｜function_calls>\n" + dsml + "</｜DSML｜function_calls>",
       two_calls()},
      {"deepseek-v4", before + "<｜DSML｜tool_calls>\n" + dsml + "</｜DSML｜tool_calls>", two_calls()},
      {"step-3",
       before + "<｜tool_calls_begin｜>" +
           step("get_weather",
                "<steptml:parameter name=\"city\">" + city +
                    "</steptml:parameter><steptml:parameter name=\"days\">3</steptml:parameter>") +
           step("add",
                "<steptml:parameter name=\"a\">1</steptml:parameter>"
                "<steptml:parameter name=\"b\">2.5</steptml:parameter>") +
           "<｜tool_calls_end｜>",
       two_calls()},
  };
}

// What models do wrong, and texts that only look like calls.
std::vector<Transcript> odd_transcripts() {
  return {
      {"hermes", "a <tool_cal and <b>", {"a <tool_cal and <b>", "", {}}},
      {"hermes", "see <tool_call> of hermes  ", {"see <tool_call> of hermes  ", "", {}}},
      {"hermes", "<tool_call>{\"name\": \"add\"}}</tool_call>\nend", {"end", "", {{"add", "", "{}"}}}},
      {"hermes",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"{",
       {"", "", {{"add", "", "{\"a\": \"{"}}}},
      {"hermes",
       "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       {"", "", {{"add", "", "{\"a\": 1}"}}}},
      {"hermes", "<tool_call>\n{\"name\": \"a", {"<tool_call>\n{\"name\": \"a", "", {}}},
      {"hermes", "hm </think> x", {"x", "hm", {}}, AnswerStart::Reasoning},
      {"hermes", " \n hm", {"", "hm", {}}, AnswerStart::Reasoning},
      {"hermes", "<think>a</think>", {"", "a", {}}},
      {"hermes", "text <think> text", {"text <think> text", "", {}}},
      {"hermes", "<think>x</think>y", {"<think>x</think>y", "", {}}, AnswerStart::Content},
      {"llama-3",
       "{\"name\": \"unknown\", \"parameters\": {}}",
       {"{\"name\": \"unknown\", \"parameters\": {}}", "", {}}},
      {"llama-3", "{\"x\": {\"name\": 1}}", {"{\"x\": {\"name\": 1}}", "", {}}},
      {"llama-4", "[1, 2]", {"[1, 2]", "", {}}},
      {"llama-4", "[add()]", {"", "", {{"add", "", "{}"}}}},
      {"lfm2",
       "<|tool_call_start|>[get_weather(city='a\\'b\\u00e9', tags=['x', (1, None)], exact=True)]",
       {"", "", {{"get_weather", "", R"({"city": "a'bé", "tags": ["x", [1, null]], "exact": true})"}}}},
      {"kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>Hello", {"Hello", "", {}}},
      {"minimax", "<minimax:tool_call>\nI am text", {"<minimax:tool_call>I am text", "", {}}},
      {"qwen3-coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\n\nline\n\n</"
       "parameter>\n<parameter=exact>\nTrue\n"
       "</parameter>\n<parameter=tags>\n[1, "
       "\"</p\"]\n</parameter>\n<parameter=new>\nx<y\n</parameter>\n</function>\n"
       "</tool_call>",
       {"",
        "",
        {{"get_weather", "", R"({"city": "\nline\n", "exact": true, "tags": [1, "</p"], "new": "x<y"})"}}}},
      {"gemma-4",
       R"(<|tool_call>call:get_weather{tags:[<|"|>a:b<|"|>,1],more:{x:null}}<tool_call|>)",
       {"", "", {{"get_weather", "", R"({"tags": ["a:b", 1], "more": {"x": null}})"}}}},
      {"harmony", "plain text", {"plain text", "", {}}},
      {"harmony", "<|channel|>final<|message|>Hi", {"Hi", "", {}}},
      {"glm", "<tool_call>add</tool_call>", {"", "", {{"add", "", "{}"}}}},
  };
}

std::vector<Transcript> all_transcripts() {
  std::vector<Transcript> all;
  for (const auto& group : {json_transcripts(), named_transcripts(), tagged_transcripts(), odd_transcripts()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

TEST(OutputParser, ReadsEveryFormatAndNoCutChangesIt) {
  std::set<std::string> formats;
  for (const Transcript& transcript : all_transcripts()) {
    SCOPED_TRACE(transcript.format + ": " + transcript.text);
    formats.insert(transcript.format);
    EXPECT_EQ(shown(read_in_parts(transcript, {})), shown(transcript.expected));
    std::vector<size_t> every;
    for (size_t i = 1; i < transcript.text.size(); ++i) {
      every.push_back(i);
      ASSERT_EQ(shown(read_in_parts(transcript, {i})), shown(transcript.expected)) << "cut at byte " << i;
    }
    EXPECT_EQ(shown(read_in_parts(transcript, every)), shown(transcript.expected)) << "byte by byte";
  }
  for (const ToolFormat& format : tool_formats())
    EXPECT_TRUE(formats.contains(format.name)) << format.name << " has no transcript";
}

TEST(OutputParser, NoCutOfATruncatedAnswerChangesIt) {
  std::mt19937 random(7);
  for (Transcript transcript : all_transcripts()) {
    const std::string whole = transcript.text;
    for (size_t size = 0; size < whole.size(); size += 1 + random() % 5) {
      transcript.text = whole.substr(0, size);
      const std::string expected = shown(read_in_parts(transcript, {}));
      std::vector<size_t> cuts;
      for (size_t at = 1 + random() % 5; at < size; at += 1 + random() % 5) cuts.push_back(at);
      ASSERT_EQ(shown(read_in_parts(transcript, cuts)), expected)
          << transcript.format << ": " << transcript.text;
    }
  }
}

TEST(OutputParser, ArgumentsComeWhileTheyAreWritten) {
  const auto parser = make_output_parser(std::make_shared<OutputFormat>(format_of("qwen3-coder")),
                                         std::make_shared<ToolSet>(weather_tools()), AnswerStart::Fresh);
  std::vector<OutputPiece> pieces;
  parser->push("<tool_call>\n<function=get_weather>\n<parameter=city>\nZür", pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(std::get<CallPiece>(pieces[0]).name, "get_weather");
  EXPECT_EQ(std::get<ArgumentsPiece>(pieces[1]).text, "{\"city\": \"Zür");
}

TEST(OutputParser, WithoutToolsCallsAreText) {
  const ParsedOutput output = parse_output(format_of("hermes"), {}, AnswerStart::Fresh, "<tool_call>x");
  EXPECT_EQ(output.content, "<tool_call>x");
}

}  // namespace
}  // namespace sluice::chat
