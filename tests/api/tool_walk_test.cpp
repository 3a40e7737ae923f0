// Random texts that the constraint of a format allows, read by the parser of that format: every one holds calls whose
// arguments fit the tools' schemas.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "chat/constraint/tool_tag.h"
#include "chat/formats/model_format.h"
#include "chat/formats/output_parser.h"
#include "chat/formats/text_cursor.h"
#include "tests/grammar/support.h"

namespace sluice::chat {

// For GoogleTest.
static void PrintTo(const ToolFormat& format, std::ostream* out) {
  *out << format.name;
}

namespace {

using grammar::kEnd;

constexpr std::string_view kTools = R"({
  "get_weather": {"type": "object", "properties": {
      "city": {"type": "string"},
      "days": {"type": "integer", "minimum": 1, "maximum": 7},
      "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "required": ["city"]},
  "add_note": {"type": "object", "$defs": {"Place": {"type": "object", "properties": {
      "street": {"type": "string"}, "zip": {"type": "integer"}}, "required": ["street", "zip"]}},
    "properties": {
      "text": {"type": "string", "minLength": 2, "maxLength": 9},
      "tags": {"type": "array", "items": {"type": "string"}},
      "done": {"type": "boolean"},
      "by": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "where": {"$ref": "#/$defs/Place"},
      "weight": {"type": "number", "minimum": 0, "maximum": 100}}, "required": ["text", "done", "where"]},
  "stop": {"type": "object", "properties": {}, "additionalProperties": false}
})";

ToolSet tool_set(bool exact) {
  const json::value tools = *parse_json(kTools, "tools");
  ToolSet set;
  for (const auto& [name, schema] : tools.get_object()) {
    json::value parameters = schema;
    // What literals of a format's own do not hold.
    if (!exact && name == "get_weather")
      parameters.at("properties").at("days") = json::value{{"type", "integer"}};
    if (!exact && name == "add_note")
      parameters.at("properties").at("weight") = json::value{{"type", "number"}};
    set.add(std::string(name), parameters);
  }
  return set;
}

class Walk {
 public:
  Walk(std::shared_ptr<const grammar::CompiledGrammar> grammar, const ToolFormat& format, unsigned seed)
      : matcher_(std::move(grammar), std::vector<Token>{kEnd}), random_(seed) {
    for (const std::string* text : {&format.value_end, &format.quote, &format.call_end, &format.section_end})
      if (!text->empty()) exits_.push_back(*text);
    for (const char* text : {"\"", "}", "]", ")", "\n</parameter>\n", ":", "1", "\xC3\xA9", "\xE2\x82\xAC"})
      exits_.emplace_back(text);
  }

  bool push(std::string_view text) {
    grammar::Matcher copy = matcher_;
    for (const char c : text) {
      const Token token = static_cast<unsigned char>(c);
      if (copy.ended() || !allowed(copy)[static_cast<size_t>(token)] || !copy.accept(token)) return false;
    }
    matcher_ = std::move(copy);
    text_ += text;
    return true;
  }

  // Until the text may end; false where that takes too long.
  bool finish() {
    for (int i = 0; i < 6000; ++i) {
      if (matcher_.ended()) return true;
      const std::vector<bool> may = allowed(matcher_);
      if (may[kEnd] && (i > 0 || !text_.empty())) return true;
      step(may);
    }
    return false;
  }
  const std::string& text() const { return text_; }

 private:
  static std::vector<bool> allowed(const grammar::Matcher& matcher) {
    std::vector<int32_t> mask(matcher.mask_words());
    const Result<bool> filled = matcher.fill(mask);
    std::vector<bool> out(kEnd + 1, filled && !*filled);
    for (size_t i = 0; filled && *filled && i < out.size(); ++i)
      out[i] = ((mask[i / 32] >> (i % 32)) & 1) != 0;
    return out;
  }

  void step(const std::vector<bool>& may) {
    // Printable characters where there are any; those beyond ASCII come whole, from exits_, but for those of marks.
    std::vector<Token> choices;
    for (const auto& [begin, end] : {std::pair<Token, Token>{32, 127}, {0, 32}, {127, kEnd}}) {
      if (!choices.empty()) break;
      for (Token token = begin; token < end; ++token)
        if (may[static_cast<size_t>(token)]) choices.push_back(token);
    }
    ASSERT_FALSE(choices.empty()) << text_;
    if (choices.size() > 2 && below(10) < 7 && push(exits_[below(exits_.size())])) return;
    const Token token = choices[below(choices.size())];
    ASSERT_TRUE(matcher_.accept(token).ok());
    text_ += static_cast<char>(token);
  }

  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  grammar::Matcher matcher_;
  std::mt19937 random_;
  std::vector<std::string> exits_;
  std::string text_;
};

std::shared_ptr<const grammar::CompiledGrammar> compiled(const ToolTag& tag) {
  auto made = grammar::compile({request::StructuralTag{.tag = write_json(tag.tag), .lenient = true}, ""});
  EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message) << "\n" << write_json(tag.tag);
  return made ? *made : nullptr;
}

// Why the calls in the text are not what was asked for; empty: they are.
std::string fault(const ToolFormat& format, const ToolSet& tools, const std::string& text, bool one) {
  const ParsedOutput read = parse_output({.tools = format}, tools, AnswerStart::Fresh, text);
  const auto parser = make_output_parser(std::make_shared<OutputFormat>(OutputFormat{.tools = format}),
                                         std::make_shared<ToolSet>(tools), AnswerStart::Fresh);
  std::vector<OutputPiece> pieces;
  for (const char& c : text) parser->push({&c, 1}, pieces);
  parser->finish(pieces);
  ParsedOutput streamed;
  for (const OutputPiece& piece : pieces) streamed.add(piece);
  if (!(streamed == read)) return "the stream is not the whole";
  if (read.calls.empty()) return "no call";
  if (one && read.calls.size() > 1) return "several calls";
  for (const ToolCall& call : read.calls) {
    if (!tools.contains(call.name)) return "an unknown tool " + call.name;
    const Result<json::value> arguments = parse_json(call.arguments, "arguments");
    if (!arguments) return arguments.error().message + ": " + call.arguments;
    const auto schema = *grammar::SchemaDocument::make(tools.schemas().find(call.name)->second);
    const auto violation = grammar::SchemaValidator(schema).check(*arguments);
    if (!violation) return violation.error().message;
    if (violation->has_value())
      return (*violation)->keyword + " at " + (*violation)->value + ": " + call.arguments;
  }
  return "";
}

class ToolWalkTest : public testing::TestWithParam<ToolFormat> {
 protected:
  ToolSet tools() const {
    const bool is_literal =
        GetParam().syntax == CallSyntax::NameWords || GetParam().syntax == CallSyntax::Python;
    return tool_set(!is_literal);
  }
};

TEST_P(ToolWalkTest, RequiredCallsAreRead) {
  const ToolFormat& format = GetParam();
  for (const bool one : {false, true}) {
    const ToolTag tag = make_tool_tag(format, tools(), {.required = true, .one = one});
    const auto grammar = compiled(tag);
    ASSERT_NE(grammar, nullptr);
    for (unsigned seed = 0; seed < (one ? 2U : 5U); ++seed) {
      Walk walk(grammar, format, seed);
      ASSERT_TRUE(walk.finish()) << walk.text();
      EXPECT_EQ(fault(format, tools(), walk.text(), one), "") << walk.text();
    }
  }
}

TEST_P(ToolWalkTest, BegunCallsAreRead) {
  const ToolFormat& format = GetParam();
  const ToolTag tag = make_tool_tag(format, tools(), {});
  const auto grammar = compiled(tag);
  ASSERT_NE(grammar, nullptr);
  const std::string mark = format.syntax == CallSyntax::Harmony  ? "<|channel|>commentary to=functions."
                           : !format.section_begin.empty()       ? format.section_begin
                           : !format.call_begin.empty()          ? format.call_begin
                           : format.syntax == CallSyntax::Python ? "[stop("
                                                                 : R"({"name": "stop", "parameters": )";
  Walk prose(grammar, format, 1);
  EXPECT_TRUE(prose.push("Any text <at all> {\"a\": [1]} and its end."));
  EXPECT_TRUE(prose.finish());
  for (unsigned seed = 0; seed < 4; ++seed) {
    Walk walk(grammar, format, seed);
    const bool has_prose = !format.is_bare() && format.syntax != CallSyntax::Harmony;
    ASSERT_TRUE(walk.push((has_prose ? "I will look.\n" : "") + std::string(trimmed(mark)))) << mark;
    ASSERT_TRUE(walk.finish()) << walk.text();
    EXPECT_EQ(fault(format, tools(), walk.text(), false), "") << walk.text();
  }
}

TEST_P(ToolWalkTest, WhatTheFormatWritesIsAllowed) {
  const ToolFormat& format = GetParam();
  const auto grammar = compiled(make_tool_tag(format, tools(), {.required = true}));
  ASSERT_NE(grammar, nullptr);
  const std::string text =
      write_calls(format, {{"get_weather", "functions.get_weather:0", R"({"city": "Paris"})"}});
  Walk walk(grammar, format, 0);
  const std::string_view wanted = format.syntax == CallSyntax::Harmony
                                      ? std::string_view(text).substr(0, text.size() - 8)
                                      : trimmed(text);
  EXPECT_TRUE(walk.push(wanted)) << wanted;
}

INSTANTIATE_TEST_SUITE_P(Formats, ToolWalkTest,
                         testing::ValuesIn(tool_formats().begin(), tool_formats().end()),
                         [](const testing::TestParamInfo<ToolFormat>& format) {
                           std::string name = format.param.name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(ToolTag, WhatCannotBeHeldIsNamed) {
  ToolSet tools;
  tools.add("f", *parse_json(R"({"type":"object","properties":{"a":{"type":"string","pattern":"^x+$"}}})",
                             "schema"));
  const ToolTag tagged = make_tool_tag(*find_tool_format("glm"), tools, {.required = true});
  ASSERT_EQ(tagged.loose.size(), 1U);
  EXPECT_EQ(tagged.loose[0].tool + " " + tagged.loose[0].keyword + " " + tagged.loose[0].path,
            "f pattern #/properties/a");
  EXPECT_TRUE(make_tool_tag(*find_tool_format("hermes"), tools, {.required = true}).loose.empty());
}

}  // namespace
}  // namespace sluice::chat
