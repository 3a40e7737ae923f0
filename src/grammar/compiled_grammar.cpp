#include "grammar/compiled_grammar.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/system/thread_turn.h"
#include "grammar/library.h"
#include "grammar/matcher_library.h"
#include "grammar/schema/free_values.h"

namespace sluice::grammar {

namespace {

using xgrammar::Grammar;

Error refuse(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

Status check_size(std::string_view what, size_t bytes, size_t limit) {
  if (bytes <= limit) return {};
  return Error{ErrorCode::LimitExceeded, fmt::format("{} of {} bytes; the limit is {}", what, bytes, limit)};
}

Error not_held(const Unheld& one) {
  return {ErrorCode::Unsupported,
          fmt::format("`{}` at {} cannot be enforced while the answer is generated, which `strict` asks for",
                      one.keyword, one.path)};
}

// A string as a literal of xgrammar's EBNF.
std::string quoted_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + '"';
}

Status lower_json(PreparedConstraint& prepared, const request::JsonSchema& given) {
  Result<LoweredSchema> lowered = lower_schema(prepared.schema, {.closed_objects = given.closed_objects});
  if (!lowered) return lowered.error();
  // What may be narrowed need not be refused.
  if (given.strict && !lowered->unheld.empty() && !given.closed_objects) {
    lowered = lower_schema(prepared.schema, {.closed_objects = true});
    if (!lowered) return lowered.error();
  }
  if (given.strict && !lowered->unheld.empty()) return not_held(lowered->unheld.front());
  if (given.compact) spell_out_free_values(lowered->schema);
  prepared.text = write_json(lowered->schema);
  prepared.unheld = std::move(lowered->unheld);
  return check_size("a schema rewritten for the grammar", prepared.text.size(), GrammarLimits::kLoweredBytes);
}

Result<PreparedConstraint> prepare_choice(PreparedConstraint prepared, const request::Choice& choice) {
  if (choice.options.empty()) return refuse("a choice needs at least one option");
  if (choice.options.size() > GrammarLimits::kChoices)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{} options; the limit is {}", choice.options.size(), GrammarLimits::kChoices)};
  prepared.text = "root ::= ";
  for (size_t i = 0; i < choice.options.size(); ++i) {
    if (i > 0) prepared.text += " | ";
    prepared.text += quoted_literal(choice.options[i]);
  }
  return prepared;
}

// Schemas inside a structural tag, rewritten in place as a schema of its own would be.
Result<json::value> lower_part(const json::value& schema, const request::StructuralTag& given,
                               std::vector<Unheld>& unheld) {
  Result<std::shared_ptr<const SchemaDocument>> document = SchemaDocument::make(schema);
  if (!document) return document.error();
  Result<LoweredSchema> lowered = lower_schema(*document, {});
  if (!lowered) return lowered.error();
  if (given.strict && !lowered->unheld.empty()) return not_held(lowered->unheld.front());
  unheld.insert(unheld.end(), lowered->unheld.begin(), lowered->unheld.end());
  return std::move(lowered->schema);
}

// What a schema that cannot be used allows at least.
json::value any_value_like(const json::value& schema) {
  const json::object* object = schema.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  const bool is_object = object != nullptr && (object->contains("properties") ||
                                               (type != nullptr && type->is_string() && *type == "object"));
  return is_object ? json::value{{"type", "object"}} : json::value(json::object());
}

Status lower_tag(json::value& tag, const request::StructuralTag& given, std::vector<Unheld>& unheld,
                 int depth) {
  if (depth > 64) return Error{ErrorCode::LimitExceeded, "a structural tag is nested deeper than 64"};
  if (json::array* array = tag.if_array()) {
    for (json::value& one : *array) {
      if (Status done = lower_tag(one, given, unheld, depth + 1); !done) return done;
    }
    return {};
  }
  json::object* object = tag.if_object();
  if (object == nullptr) return {};
  for (auto& member : *object) {
    const bool is_schema = member.key() == "json_schema" || member.key() == "schema";
    if (!is_schema) {
      if (Status done = lower_tag(member.value(), given, unheld, depth + 1); !done) return done;
      continue;
    }
    Result<json::value> lowered = lower_part(member.value(), given, unheld);
    if (!lowered && !given.lenient) return lowered.error();
    member.value() = lowered ? std::move(*lowered) : any_value_like(member.value());
  }
  return {};
}

Status lower_json(PreparedConstraint& prepared, const request::StructuralTag& given) {
  Result<json::value> tag =
      parse_json(given.tag, "the structural tag", {.depth = 64, .bytes = SchemaLimits::kBytes});
  if (!tag) return tag.error();
  if (Status done = lower_tag(*tag, given, prepared.unheld, 0); !done) return done.error();
  // Nobody could check the parts of a text that has several.
  if (!given.lenient && !prepared.unheld.empty()) return not_held(prepared.unheld.front());
  prepared.text = write_json(*tag);
  return {};
}

Grammar read_grammar(const PreparedConstraint& prepared, const xgrammar::TokenizerInfo& tokens) {
  const request::Constraint::Body& body = prepared.constraint.body;
  const auto* schema = std::get_if<request::JsonSchema>(&body);
  const auto* object = std::get_if<request::JsonObject>(&body);
  if (schema != nullptr || object != nullptr) {
    const bool any_order = schema != nullptr && schema->any_order;
    const bool compact = schema != nullptr ? schema->compact : object->compact;
    // Without free blanks it writes a blank behind each separator unless these are given.
    const auto separators =
        compact ? std::optional(std::pair<std::string, std::string>(",", ":")) : std::nullopt;
    return Grammar::FromJSONSchema(prepared.text, !compact, std::nullopt, separators, false,
                                   GrammarLimits::kWhitespace, false, any_order);
  }
  if (std::holds_alternative<request::Pattern>(body)) return Grammar::FromRegex(prepared.text);
  if (const auto* free = std::get_if<request::ContextFree>(&body);
      free != nullptr && free->syntax == request::ContextFree::Syntax::Lark)
    return Grammar::FromLark(prepared.text, tokens);
  if (!std::holds_alternative<request::StructuralTag>(body)) return Grammar::FromEBNF(prepared.text);
  auto read = Grammar::FromStructuralTag(prepared.text, tokens);
  if (const auto* grammar = std::get_if<Grammar>(&read)) return *grammar;
  throw std::runtime_error(std::visit([](const auto& error) { return std::string(error.what()); },
                                      std::get<xgrammar::StructuralTagError>(read)));
}

// Sharing masks of rules asks for hashes of them, which not every recursive grammar has.
xgrammar::CompiledGrammar compile_for(const Vocabulary::Library& vocabulary, const Grammar& grammar) {
  try {
    return vocabulary.compiler.CompileGrammar(grammar);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return xgrammar::GrammarCompiler(vocabulary.tokens, 1, false).CompileGrammar(grammar);
  }
}

// Whoever begins an answer then finds the mask of its first token.
void compute_first_mask(const xgrammar::CompiledGrammar& grammar, const Vocabulary& vocabulary) {
  std::vector<int32_t> mask(vocabulary.mask_words());
  xgrammar::GrammarMatcher matcher(grammar);
  fill_bitmask(matcher, mask);
}

bool is_strict(const request::Constraint& constraint) {
  const auto* schema = std::get_if<request::JsonSchema>(&constraint.body);
  const auto* tag = std::get_if<request::StructuralTag>(&constraint.body);
  return schema != nullptr ? schema->strict : tag == nullptr || tag->strict;
}

}  // namespace

Status lower_constraint(PreparedConstraint& prepared) {
  const request::Constraint::Body& body = prepared.constraint.body;
  if (const auto* schema = std::get_if<request::JsonSchema>(&body)) return lower_json(prepared, *schema);
  if (const auto* tag = std::get_if<request::StructuralTag>(&body)) return lower_json(prepared, *tag);
  return {};
}

Result<PreparedConstraint> prepare(const request::Constraint& constraint) {
  Result<PreparedConstraint> prepared = read_constraint(constraint);
  if (!prepared) return prepared;
  if (Status lowered = lower_constraint(*prepared); !lowered) return lowered.error();
  return prepared;
}

Result<PreparedConstraint> read_constraint(const request::Constraint& constraint) {
  if (Status fits = check_size("`after`", constraint.after.size(), GrammarLimits::kAfterBytes); !fits)
    return fits.error();
  PreparedConstraint prepared{.constraint = constraint};
  const request::Constraint::Body& body = constraint.body;
  if (const auto* schema = std::get_if<request::JsonSchema>(&body)) {
    Result<std::shared_ptr<const SchemaDocument>> document = SchemaDocument::parse(schema->schema);
    if (!document) return document.error();
    prepared.schema = std::move(*document);
    return prepared;
  }
  if (const auto* choice = std::get_if<request::Choice>(&body))
    return prepare_choice(std::move(prepared), *choice);
  if (std::holds_alternative<request::StructuralTag>(body)) return prepared;
  if (const auto* object = std::get_if<request::JsonObject>(&body)) {
    json::value schema{{"type", "object"}};
    schema.get_object()["additionalProperties"] = json::object();
    if (object->compact) spell_out_free_values(schema);
    prepared.text = object->compact ? write_json(schema) : R"({"type":"object"})";
  }
  if (std::holds_alternative<request::AnyText>(body)) prepared.text = "root ::= \"\"";
  if (const auto* pattern = std::get_if<request::Pattern>(&body)) {
    if (Result<Regex> regex = Regex::compile(pattern->regex); !regex) return regex.error();
    prepared.text = pattern->regex;
  }
  if (const auto* free = std::get_if<request::ContextFree>(&body)) prepared.text = free->grammar;
  if (prepared.text.empty()) return refuse("an empty grammar");
  if (Status fits = check_size("a grammar", prepared.text.size(), GrammarLimits::kBytes); !fits)
    return fits.error();
  return prepared;
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<Library> library, PreparedConstraint prepared,
                                 std::shared_ptr<const Vocabulary> vocabulary)
    : library_(std::move(library)),
      vocabulary_(std::move(vocabulary)),
      schema_(std::move(prepared.schema)),
      after_(std::move(prepared.constraint.after)),
      is_free_(std::holds_alternative<request::AnyText>(prepared.constraint.body)),
      text_bytes_(2 * prepared.text.size()) {}

CompiledGrammar::~CompiledGrammar() = default;

size_t CompiledGrammar::bytes() const {
  return library_->grammar.MemorySizeBytes() + text_bytes_ + masks_.bytes();
}

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(
    PreparedConstraint prepared, std::shared_ptr<const Vocabulary> vocabulary,
    const std::atomic<bool>* cancelled) {
  WarningScope scope;
  const WorkLimit limit(GrammarLimits::kCompileSeconds, cancelled, [] { (void)end_long_turn(); });
  try {
    // Marks of a model's formats are part of texts that the model's formats have.
    const bool has_marks = std::holds_alternative<request::StructuralTag>(prepared.constraint.body);
    const Vocabulary::Library& known = has_marks ? vocabulary->library_with_marks() : vocabulary->library();
    const Grammar grammar = read_grammar(prepared, known.tokens);
    // What its reader passes over is loosened; only the check of a finished value makes up for it.
    if (!scope.warnings().empty() && is_strict(prepared.constraint))
      return Error{ErrorCode::Unsupported,
                   fmt::format("the grammar cannot be enforced: {}", scope.warnings().front())};
    auto library = std::make_unique<Library>(Library{compile_for(known, grammar)});
    compute_first_mask(library->grammar, *vocabulary);
    return std::shared_ptr<const CompiledGrammar>(
        new CompiledGrammar(std::move(library), std::move(prepared), std::move(vocabulary)));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::LimitExceeded, "there is no memory for the grammar"};
  } catch (const std::exception& error) {
    return refuse(fmt::format("the grammar cannot be used: {}", error.what()));
  }
}

Status CompiledGrammar::check(std::string_view answer) const {
  if (schema_ == nullptr) return {};
  const auto violation = [](std::string message) {
    return Error{ErrorCode::InvalidArgument, std::move(message), std::string(kSchemaViolation)};
  };
  Result<json::value> value = parse_json(answer, "the answer", {.depth = 512});
  if (!value) return violation(value.error().message);
  Result<std::optional<Violation>> found = SchemaValidator(schema_).check(*value);
  if (!found) return violation(found.error().message);
  if (!found->has_value()) return {};
  const Violation& one = **found;
  return violation(fmt::format("the answer does not fit the schema: `{}` at {} refuses the value at {}",
                               one.keyword, one.schema, one.value.empty() ? "its root" : one.value));
}

}  // namespace sluice::grammar
