// Any bytes as a chat template: an error, or a rendering within its limits whose spans are its text.
#include <cstdlib>
#include <ctime>

#include "chat/chat_template.h"
#include "jinja/interpreter.h"
#include "jinja/syntax/parser.h"

namespace {

using namespace sluice::jinja;

// Small, so that an input ends in microseconds; the code that watches them is the same.
constexpr Limits kLimits = {.source_bytes = 1 << 16,
                            .steps = 5'000,
                            .output_bytes = 1 << 16,
                            .value_bytes = 1 << 20,
                            .range_items = 10'000};

Value message(std::string_view role, Value content) {
  return make_map({{make_string(Text("role")), make_string(Text(std::string(role)))},
                   {make_string(Text("content", true)), std::move(content)}});
}

Value text(const char* bytes) {
  return make_string(Text(bytes, true));
}

void define_variables(Interpreter& interpreter) {
  const Value arguments =
      make_map({{text("city"), text("Z\xC3\xBCrich \xF0\x9F\x8E\x89")}, {text("n"), Value(2.5)}});
  interpreter.define("messages",
                     make_list({message("system", text("a <|b|> 'c' \"d\"\n")), message("user", Value()),
                                message("assistant", make_list({text("x"), Value(int64_t{7})}))}));
  interpreter.define("tools", make_list({make_map({{text("function"), arguments}})}));
  interpreter.define("s", text("  A\xC3\xA9 b,c\t"));
  interpreter.define("n", Value(int64_t{-3}));
  interpreter.define("t", Value(true));
}

void check_marks(const Text& text) {
  size_t end = 0;
  for (const ByteRange& mark : text.marks()) {
    if (mark.begin >= mark.end || mark.end > text.size() || (end > 0 && mark.begin <= end)) std::abort();
    end = mark.end;
  }
  if (text.size() > kLimits.output_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  int line = 1;
  try {
    const SyntaxTree tree = parse_template(source, kLimits, line);
    Runtime runtime(kLimits, std::tm{.tm_mday = 26, .tm_mon = 6, .tm_year = 125});
    Interpreter interpreter(tree, runtime);
    define_variables(interpreter);
    check_marks(interpreter.run(line));
  } catch (const TemplateError& error) {
    if (error.message.size() > (1 << 21)) std::abort();
  }
  return 0;
}
