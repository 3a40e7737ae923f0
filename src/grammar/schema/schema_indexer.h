// Fills a SchemaDocument: checks shapes, resolves references, compiles patterns.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/schema/keywords.h"
#include "grammar/schema/schema_document.h"

namespace sluice::grammar {

class SchemaIndexer {
 public:
  explicit SchemaIndexer(SchemaDocument& document) : document_(document) {}
  Status run();

 private:
  struct Reference {
    const json::object* from = nullptr;
    std::string base;  // address of the resource it stands in
    std::string_view keyword, text;
  };

  Status visit(const json::value& schema, const std::string& base);
  Status visit_object(const json::value& self, std::string base);
  Status check_keyword(const json::object& schema, const Keyword& keyword, const json::value& value);
  Status visit_children(const Keyword& keyword, const json::value& value, const std::string& base);
  Status add_pattern(const json::object& schema, std::string_view keyword, std::string_view source);
  Status resolve(const Reference& reference);
  const json::value* find(const Reference& reference) const;
  Error fault(const json::object& schema, std::string_view keyword, std::string_view what) const;

  SchemaDocument& document_;
  std::unordered_map<std::string, const json::value*> resources_;  // by address, without fragment
  std::unordered_map<std::string, const json::value*> anchors_;    // by address#name
  std::unordered_map<std::string, std::vector<const json::value*>> dynamic_anchors_;  // by name
  std::unordered_set<const json::value*> visited_;
  std::vector<Reference> references_;
};

}  // namespace sluice::grammar
