// What the text of an answer must be. Plain data: the grammar layer compiles it, the API and the command line fill it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace sluice::request {

// A JSON text that fits the schema. What a grammar cannot hold (uniqueItems, if/then/else) is refused before the request
// runs where `strict` is set, and else checked on the finished answer, which then ends with an error if it fails.
struct JsonSchema {
  std::string schema;  // JSON
  bool strict = false;
  // Objects hold only the properties that are named, where the schema says nothing of others.
  bool closed_objects = true;
  // Members of objects come in any order, each once; else in that of the schema.
  bool any_order = false;
  bool compact = false;  // no blanks between the parts

  bool operator==(const JsonSchema&) const = default;
};

// Any JSON object.
struct JsonObject {
  bool compact = false;  // no blanks between the parts

  bool operator==(const JsonObject&) const = default;
};

// The whole text matches.
struct Pattern {
  std::string regex;

  bool operator==(const Pattern&) const = default;
};

// The text is one of these.
struct Choice {
  std::vector<std::string> options;

  bool operator==(const Choice&) const = default;
};

// A context-free grammar. Its first rule is `root`, of Lark `start`.
struct ContextFree {
  enum class Syntax : uint8_t {
    Ebnf,  // xgrammar's, and llama.cpp's GBNF
    Lark,
  };
  Syntax syntax = Syntax::Ebnf;
  std::string grammar;

  bool operator==(const ContextFree&) const = default;
};

// The grammar in the syntax that it is written in: EBNF and GBNF define rules with ::=, which Lark does not.
inline ContextFree context_free(std::string grammar) {
  const bool is_ebnf = grammar.find("::=") != std::string::npos;
  return {.syntax = is_ebnf ? ContextFree::Syntax::Ebnf : ContextFree::Syntax::Lark,
          .grammar = std::move(grammar)};
}

// Free text with constrained parts that begin at triggers: a structural tag of xgrammar, as JSON
// ({"type": "structural_tag", "format": {...}}). Its schemas are held to what JsonSchema says of `strict`.
struct StructuralTag {
  std::string tag;
  bool strict = false;
  // What a grammar cannot hold of the schemas passes, and a schema that cannot be used is any JSON: whoever reads the
  // parts of the answer looks after them.
  bool lenient = false;

  bool operator==(const StructuralTag&) const = default;
};

// Any text: where only what comes before it is limited.
struct AnyText {
  bool operator==(const AnyText&) const = default;
};

// The free text before a constraint, which Constraint::after ends.
struct FreeStart {
  // It is there only where the answer begins with these tokens, and the constraint begins at once otherwise. Empty: always.
  std::vector<Token> opening;
  std::optional<int> budget;   // most tokens behind the opening
  std::vector<Token> closing;  // that follow when the budget is spent; their text has Constraint::after

  bool operator==(const FreeStart&) const = default;
};

struct Constraint {
  using Body = std::variant<JsonSchema, JsonObject, Pattern, Choice, ContextFree, StructuralTag, AnyText>;
  Body body;
  // The constraint begins behind the first place where the answer has this text, the end of its reasoning
  // ("</think>"): what comes before is free, but cannot end the answer. Empty: with the first token.
  std::string after;
  FreeStart start = {};  // of no meaning where `after` is empty

  bool operator==(const Constraint&) const = default;
};

// Of the texts that it holds.
size_t bytes_of(const Constraint& constraint);

}  // namespace sluice::request
