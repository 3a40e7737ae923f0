#include "request/constraint.h"

namespace sluice::request {

namespace {

struct CountBytes {
  size_t operator()(const JsonSchema& schema) const { return schema.schema.size(); }
  size_t operator()(const JsonObject&) const { return 0; }
  size_t operator()(const Pattern& pattern) const { return pattern.regex.size(); }
  size_t operator()(const Choice& choice) const {
    size_t bytes = 0;
    for (const std::string& option : choice.options) bytes += sizeof option + option.size();
    return bytes;
  }
  size_t operator()(const ContextFree& free) const { return free.grammar.size(); }
  size_t operator()(const StructuralTag& tag) const { return tag.tag.size(); }
  size_t operator()(const AnyText&) const { return 0; }
};

}  // namespace

size_t bytes_of(const Constraint& constraint) {
  const size_t tokens = constraint.start.opening.size() + constraint.start.closing.size();
  return constraint.after.size() + tokens * sizeof(Token) + std::visit(CountBytes{}, constraint.body);
}

}  // namespace sluice::request
