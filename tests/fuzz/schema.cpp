// Schemas, patterns and grammars of requests: whatever they are, preparing them ends, and a schema that is lowered is one
// that the grammar's own reader takes or refuses.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/compiled_grammar.h"

namespace {

using sluice::Result;
using sluice::Token;
using sluice::grammar::CompiledGrammar;
using sluice::grammar::PreparedConstraint;
using sluice::grammar::SchemaDocument;
using sluice::grammar::SchemaValidator;

std::shared_ptr<const sluice::grammar::Vocabulary> bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 128; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  return std::make_shared<const sluice::grammar::Vocabulary>(std::move(tokens), std::vector<Token>{128});
}

sluice::request::Constraint constraint_of(uint8_t kind, std::string text) {
  switch (kind % 4) {
    case 0:
      return {sluice::request::Pattern{std::move(text)}, ""};
    case 1:
      return {sluice::request::context_free(std::move(text)), ""};
    case 2:
      return {sluice::request::JsonSchema{.schema = std::move(text), .strict = true}, ""};
    default:
      return {
          sluice::request::JsonSchema{.schema = std::move(text), .closed_objects = false, .any_order = true},
          ""};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What xgrammar makes of long repetitions takes time, which is not what is looked for here.
  if (size < 2 || size > 512) return 0;
  static const auto vocabulary = bytes();
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Result<PreparedConstraint> prepared = sluice::grammar::prepare(constraint_of(data[0], text));
  if (!prepared) return 0;
  if (prepared->schema != nullptr) {
    for (const char* value : {"1", "\"a\"", "[1,{}]", "{\"a\":1,\"b\":[null]}"}) {
      const Result<sluice::json::value> parsed = sluice::parse_json(value, "a value");
      (void)SchemaValidator(prepared->schema).check(*parsed);
    }
  }
  const bool is_schema = prepared->schema != nullptr;
  if (is_schema) (void)CompiledGrammar::compile(std::move(*prepared), vocabulary);
  return 0;
}
