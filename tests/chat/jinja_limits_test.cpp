// What a hostile template or conversation can cost: every bound ends in an error that names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "tests/chat/chat_template_support.h"

namespace sluice::chat {
namespace {

std::string repeat(std::string_view unit, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += unit;
  return out;
}

Error error_of(const std::string& source, const json::object& variables = {}) {
  const std::clock_t start = std::clock();
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  const Result<Rendering> rendering =
      parsed.ok() ? parsed->render(variables) : Result<Rendering>(parsed.error());
  // Processor time, so that a busy machine does not matter.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20.0);
  EXPECT_FALSE(rendering.ok()) << source.substr(0, 200);
  return rendering.ok() ? Error{} : rendering.error();
}

void expect_limit(const std::string& source, std::string_view name, const json::object& variables = {}) {
  const Error error = error_of(source, variables);
  EXPECT_EQ(error.code, ErrorCode::LimitExceeded) << source.substr(0, 200) << "\n" << error.message;
  EXPECT_NE(error.message.find(name), std::string::npos) << source.substr(0, 200) << "\n" << error.message;
}

class StopsTheSecondTime : public Interrupt {
 public:
  Status check() override {
    return ++looks < 2 ? Status() : Status(Error{ErrorCode::Unavailable, "stopped"});
  }
  int looks = 0;
};

TEST(JinjaLimits, ARenderingCanBeStopped) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse("{% for i in range(100000) %}{{ i }}{% endfor %}");
  StopsTheSecondTime interrupt;
  RenderOptions options;
  options.interrupt = &interrupt;
  const Result<Rendering> rendering = parsed->render({}, options);
  ASSERT_FALSE(rendering.ok());
  EXPECT_EQ(rendering.error().message, "stopped");
  EXPECT_EQ(interrupt.looks, 2);
}

// The number of variables times the number of names would be 10^9 comparisons.
TEST(JinjaLimits, VariablesAreDefinedInLinearTime) {
  std::string source;
  json::object variables;
  RenderOptions options;
  for (int i = 0; i < 30'000; ++i) {
    if (i < 5'000) source += "{{ v" + std::to_string(i) + " }}";
    variables["v" + std::to_string(i)] = i;
    options.user_variables.push_back("v" + std::to_string(i));
  }
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  double best = 1e9;
  for (int i = 0; i < 3 && best >= 1.0; ++i) {
    const std::clock_t start = std::clock();
    EXPECT_TRUE(parsed->render(variables, options).ok());
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  EXPECT_LT(best, 1.0);
}

TEST(JinjaLimits, DeepSourceIsRefused) {
  expect_limit(repeat("{% if 1 %}", 5500) + repeat("{% endif %}", 5500), "nesting");
  expect_limit("{{ " + repeat("(", 6000) + "1" + repeat(")", 6000) + " }}", "nesting");
  expect_limit("{{ " + repeat("[", 6000) + repeat("]", 6000) + " }}", "nesting");
  expect_limit("{{ " + repeat("{1:", 6000) + "1" + repeat("}", 6000) + " }}", "nesting");
  expect_limit("{{ " + repeat("not ", 6000) + "1 }}", "nesting");
  expect_limit("{{ " + repeat("-", 6000) + "1 }}", "nesting");
  expect_limit("{{ x" + repeat(".a", 6000) + " }}", "nesting");
  expect_limit("{{ x" + repeat("|string", 6000) + " }}", "nesting");
  expect_limit("{{ x" + repeat("[0]", 6000) + " }}", "nesting");
  expect_limit("{{ " + repeat("a(", 6000) + repeat(")", 6000) + " }}", "nesting");
  expect_limit("{{ " + repeat("1 if 1 else ", 6000) + "1 }}", "nesting");
  expect_limit("{% for " + repeat("(", 6000) + "a" + repeat(")", 6000) + " in x %}{% endfor %}", "nesting");
  expect_limit(repeat("{% for a in [1] %}", 300) + repeat("{% endfor %}", 300), "nesting");
}

TEST(JinjaLimits, NestingBelowTheLimitWorks) {
  const auto depth_150 = ChatTemplate::parse(repeat("{% if 1 %}", 150) + "x" + repeat("{% endif %}", 150));
  ASSERT_TRUE(depth_150.ok()) << depth_150.error().message;
  EXPECT_EQ(depth_150->render({})->text(), "x");
  const auto brackets = ChatTemplate::parse("{{ " + repeat("(", 150) + "1" + repeat(")", 150) + " }}");
  ASSERT_TRUE(brackets.ok()) << brackets.error().message;
  EXPECT_EQ(brackets->render({})->text(), "1");
  const auto chain =
      ChatTemplate::parse("{{ 0" + repeat(" + 1", 5000) + " }}{{ ''" + repeat(" ~ 'a'", 3000) + " }}");
  ASSERT_TRUE(chain.ok()) << chain.error().message;
  EXPECT_EQ(chain->render({})->text(), "5000" + repeat("a", 3000));
}

TEST(JinjaLimits, LongSourceIsRefused) {
  expect_limit(repeat("a", (size_t{1} << 20) + 1), "bytes of source");
  expect_limit(repeat("{{a}}", 150'000), "nodes");
  expect_limit("{{ [" + repeat("1,", 150'000) + "] }}", "nodes");
}

TEST(JinjaLimits, RecursionEnds) {
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested");
  expect_limit(
      "{% macro f(x) %}{% for i in [1] %}{% if 1 %}{{ [f(x)] }}{% endif %}{% endfor %}{% endmacro %}{{ f(1) "
      "}}",
      "nested");
  expect_limit("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
               "nested");
  expect_limit(
      "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}{% call f() %}y{% endcall %}",
      "nested");
  expect_limit("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested");
  expect_limit("{{ 'a'|map(*(['map'] * 5000))|list }}", "nested");
}

TEST(JinjaLimits, WorkIsCounted) {
  expect_limit("{% for a in range(1000000) %}{% endfor %}", "steps");
  expect_limit(
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}x"
      "{% endfor %}{% endfor %}{% endfor %}",
      "");
  expect_limit("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set t = s.upper() %}{% endfor %}",
               "steps");
  expect_limit(
      "{% set s = 'a' * 4000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
      "steps");
  expect_limit(
      "{% set ns = namespace(x=1, y=1) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "steps");
}

TEST(JinjaLimits, RangesAreBounded) {
  expect_limit("{{ range(1000001)|list }}", "range");
  expect_limit("{% for i in range(1000000000000) %}{% endfor %}", "range");
  expect_limit("{{ range(-9223372036854775807, 9223372036854775807) }}", "range");
  expect_limit("{{ range(9223372036854775807, -9223372036854775807, -1) }}", "range");
}

TEST(JinjaLimits, MemoryIsBounded) {
  expect_limit("{{ 'a' * 100000000000 }}", "bytes of values");
  expect_limit("{{ [1] * 100000000000 }}", "bytes of values");
  expect_limit(
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      "bytes of values");
  expect_limit(
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
      "%}",
      "bytes of values");
  expect_limit(
      "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s|replace('', 'aaaaaaaa') %}"
      "{% endfor %}",
      "bytes of values");
  expect_limit("{{ 'a'.center(100000000000) }}", "bytes of values");
  expect_limit("{{ 'a'|center(100000000000) }}", "bytes of values");
  expect_limit("{{ '1'.zfill(100000000000) }}", "bytes of values");
  expect_limit("{{ '%2000000000d' % 1 }}", "bytes of values");
  expect_limit("{{ '{:2000000000}'.format(1) }}", "bytes of values");
  expect_limit("{{ [1]|tojson(indent=100000000000) }}", "bytes of values");
  expect_limit("{{ 'a\nb'|indent(100000000000) }}", "bytes of values");
  expect_limit("{{ '\t'.expandtabs(100000000000) }}", "bytes of values");
  expect_limit("{{ [1]|batch(100000000000, 0)|list }}", "bytes of values");
  expect_limit(
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
      "{{ ns.x|string|length }}",
      "");
}

TEST(JinjaLimits, NumbersOfDigitsAreBounded) {
  expect_limit("{{ '%.2000000000f' % 1 }}", "digits");
  expect_limit("{{ '{:.2000000000f}'.format(1.5) }}", "digits");
  EXPECT_NE(error_of("{{ 9223372036854775807 + 1 }}").message.find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ -9223372036854775807 - 2 }}").message.find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ 2 ** 64 }}").message.find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ 99999999999999999999 }}").message.find("64-bit"), std::string::npos);
  EXPECT_EQ(ChatTemplate::parse("{{ (-9223372036854775807 - 1) % -1 }}")->render({})->text(), "0");
  error_of("{{ (-9223372036854775807 - 1) // -1 }}");
  error_of("{{ -(-9223372036854775807 - 1) }}");
  error_of("{{ (-9223372036854775807 - 1)|abs }}");
}

TEST(JinjaLimits, OutputIsBounded) {
  expect_limit("{% set s = 'a' * 1000000 %}{% for i in range(9) %}{{ s }}{% endfor %}", "bytes of output");
}

TEST(JinjaLimits, DeepValuesAreRefused) {
  expect_limit(
      "{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "nesting of values");
  expect_limit("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nesting of values");
  expect_limit("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me|string }}", "nesting of values");
  json::value deep = 1;
  for (int i = 0; i < 1000; ++i) deep = json::array{std::move(deep)};
  expect_limit("{{ x }}", "nesting", {{"x", std::move(deep)}});
}

TEST(JinjaLimits, ChainsOfObjectsAreFreedWithoutRecursion) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace(x=none) %}{% for i in range(50000) %}{% set ns.x = namespace(x=ns.x) %}{% "
      "endfor %}done");
  ASSERT_TRUE(parsed.ok());
  const Result<Rendering> rendering = parsed->render({});
  ASSERT_TRUE(rendering.ok()) << rendering.error().message;
  EXPECT_EQ(rendering->text(), "done");
}

TEST(JinjaErrors, NameTheLineAndPassTheWordsOfTheTemplate) {
  EXPECT_EQ(error_of("a\nb\n{{ raise_exception('Only user roles!') }}").message, "Only user roles!");
  EXPECT_EQ(error_of("a\nb\n{{ x.y }}").message, "template line 3: 'x' is undefined");
  EXPECT_EQ(error_of("a\n{% if %}").message.substr(0, 15), "template line 2");
  EXPECT_NE(error_of("\xff").message.find("UTF-8 at byte 0"), std::string::npos);
}

}  // namespace
}  // namespace sluice::chat
