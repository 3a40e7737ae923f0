// A constraint made ready for a vocabulary: the automaton that gives masks, and the schema that the finished answer is held
// to.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "grammar/mask_memo.h"
#include "grammar/schema/schema_lowering.h"
#include "grammar/schema/schema_validator.h"
#include "grammar/vocabulary.h"
#include "request/constraint.h"

namespace sluice::grammar {

struct GrammarLimits {
  static constexpr size_t kBytes = size_t{256} << 10;  // of a pattern, grammar or tag
  static constexpr size_t kChoices = 10'000;
  static constexpr size_t kLoweredBytes = size_t{2} << 20;
  static constexpr size_t kAfterBytes = 256;
  static constexpr int kWhitespace = 8;         // blanks in a row inside JSON
  static constexpr double kCompileSeconds = 2;  // of the processor, the first mask included
  static constexpr double kMaskSeconds = 0.1;   // of the processor, for a later mask or token
};

// What is read of a constraint before it meets a vocabulary.
struct PreparedConstraint {
  request::Constraint constraint;
  std::string text;  // what xgrammar reads
  std::shared_ptr<const SchemaDocument> schema;
  std::vector<Unheld> unheld;  // checked on the finished answer
};

// Reads what is sure to be quick: syntax, the shape of keywords, sizes. Errors name keyword and path, or what is wrong with
// the grammar.
Result<PreparedConstraint> read_constraint(const request::Constraint& constraint);
// Fills `text` where it takes a rewritten schema, which may take some milliseconds.
Status lower_constraint(PreparedConstraint& prepared);
// Both.
Result<PreparedConstraint> prepare(const request::Constraint& constraint);

// May be used by many threads at once. Masks are computed when a matcher first meets their state.
class CompiledGrammar {
 public:
  // The first mask is computed with it. Once `cancelled` is true it ends with an error soon.
  static Result<std::shared_ptr<const CompiledGrammar>> compile(PreparedConstraint prepared,
                                                                std::shared_ptr<const Vocabulary> vocabulary,
                                                                const std::atomic<bool>* cancelled = nullptr);
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;
  ~CompiledGrammar();

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::string& after() const { return after_; }
  // Any text fits.
  bool is_free() const { return is_free_; }
  // Grows with the masks that matchers ask for.
  size_t bytes() const;
  // Whether a complete answer is what was asked for. The error's field is "schema_violation".
  Status check(std::string_view answer) const;

  struct Library;
  const Library& library() const { return *library_; }
  // Of states that matchers have met.
  MaskMemo& masks() const { return masks_; }

 private:
  CompiledGrammar(std::unique_ptr<Library> library, PreparedConstraint prepared,
                  std::shared_ptr<const Vocabulary> vocabulary);

  std::unique_ptr<Library> library_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const SchemaDocument> schema_;
  std::string after_;
  bool is_free_ = false;
  size_t text_bytes_ = 0;
  mutable MaskMemo masks_;
};

// The word for an answer that is complete and does not fit.
inline constexpr std::string_view kSchemaViolation = "schema_violation";

}  // namespace sluice::grammar
