#include "grammar/schema/schema_indexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/system/thread_turn.h"
#include "grammar/schema/formats.h"

namespace sluice::grammar {

namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};

bool is_schema(const json::value& value) {
  return value.is_bool() || value.is_object();
}

bool is_name_array(const json::value& value) {
  const json::array* array = value.if_array();
  return array != nullptr &&
         std::all_of(array->begin(), array->end(), [](const json::value& one) { return one.is_string(); });
}

bool is_type(const json::value& value) {
  return value.is_string() &&
         std::find(kTypes.begin(), kTypes.end(), std::string_view(value.get_string())) != kTypes.end();
}

bool is_count(const json::value& value) {
  return value.is_number() && is_whole(value) && number_of(value) >= 0;
}

template <class Test>
bool all_members(const json::value& value, Test test) {
  const json::object* object = value.if_object();
  return object != nullptr && std::all_of(object->begin(), object->end(),
                                          [&](const auto& member) { return test(member.value()); });
}

template <class Test>
bool all_items(const json::value& value, Test test) {
  const json::array* array = value.if_array();
  return array != nullptr && std::all_of(array->begin(), array->end(), test);
}

// Whether the value has the shape, and in words what it must be.
struct Verdict {
  bool fits = false;
  std::string_view wanted;
};

Verdict judge(KeywordShape shape, const json::value& value) {
  switch (shape) {
    case KeywordShape::Schema:
      return {is_schema(value), "a schema (an object or a boolean)"};
    case KeywordShape::Schemas:
      return {all_items(value, is_schema) && !value.get_array().empty(), "a non-empty array of schemas"};
    case KeywordShape::SchemaMap:
    case KeywordShape::PatternMap:
      return {all_members(value, is_schema), "an object whose values are schemas"};
    case KeywordShape::Items:
      return {is_schema(value) || all_items(value, is_schema), "a schema or an array of schemas"};
    case KeywordShape::Dependencies:
      return {all_members(value, [](const json::value& one) { return is_schema(one) || is_name_array(one); }),
              "an object whose values are schemas or arrays of names"};
    case KeywordShape::NameMap:
      return {all_members(value, is_name_array), "an object whose values are arrays of names"};
    case KeywordShape::Names:
      return {is_name_array(value), "an array of strings"};
    case KeywordShape::Types:
      return {is_type(value) || (all_items(value, is_type) && !value.get_array().empty()),
              "null, boolean, integer, number, string, array, object, or an array of these"};
    case KeywordShape::Count:
      return {is_count(value), "a whole number from 0"};
    case KeywordShape::Number:
      return {value.is_number(), "a number"};
    case KeywordShape::PositiveNumber:
      return {value.is_number() && number_of(value) > 0, "a number above 0"};
    case KeywordShape::NumberOrBoolean:
      return {value.is_number() || value.is_bool(), "a number"};
    case KeywordShape::Boolean:
      return {value.is_bool(), "a boolean"};
    case KeywordShape::String:
    case KeywordShape::Pattern:
      return {value.is_string(), "a string"};
    case KeywordShape::Values:
      return {value.is_array() && !value.get_array().empty(), "a non-empty array"};
  }
  return {};
}

std::string_view without_fragment(std::string_view address) {
  return address.substr(0, address.find('#'));
}

// `reference` seen from `base`: the part of RFC 3986 that addresses of schemas use.
std::string join(std::string_view base, std::string_view reference) {
  base = without_fragment(base);
  const size_t colon = reference.find(':');
  if (colon != std::string_view::npos && colon < reference.find('/')) return std::string(reference);
  if (reference.empty() || reference[0] == '#') return fmt::format("{}{}", base, reference);
  const size_t scheme = base.find("://");
  if (reference[0] == '/') {
    const size_t path = scheme == std::string_view::npos ? 0 : base.find('/', scheme + 3);
    return fmt::format("{}{}", base.substr(0, path), reference);
  }
  const size_t slash = base.rfind('/');
  const bool has_folder =
      slash != std::string_view::npos && (scheme == std::string_view::npos || slash > scheme + 2);
  return fmt::format("{}{}", has_folder ? base.substr(0, slash + 1) : std::string_view(), reference);
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2])) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool escape =
        token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
    out += escape ? (token[++i] == '0' ? '~' : '/') : token[i];
  }
  return out;
}

const json::value* child(const json::value& value, const std::string& key) {
  if (const json::object* object = value.if_object()) return object->if_contains(key);
  const json::array* array = value.if_array();
  const bool is_index =
      !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
  return array != nullptr && is_index ? array->if_contains(std::stoul(key)) : nullptr;
}

// What a JSON pointer ("/a/b", or nothing) leads to; null where it leads nowhere.
const json::value* follow(const json::value& from, std::string_view pointer) {
  const json::value* at = &from;
  while (!pointer.empty() && at != nullptr) {
    if (pointer[0] != '/') return nullptr;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    at = child(*at, unescaped(pointer.substr(1, end - 1)));
    pointer.remove_prefix(end);
  }
  return at;
}

}  // namespace

Status SchemaIndexer::run() {
  const json::value& root = document_.root_;
  if (!is_schema(root)) return Error{ErrorCode::InvalidArgument, "the schema must be an object or a boolean"};
  if (const json::object* object = root.if_object()) {
    if (const json::value* draft = object->if_contains("$schema"); draft != nullptr && draft->is_string()) {
      const std::string_view name = draft->get_string();
      // Another vocabulary may give keywords another meaning.
      if (name.find("json-schema.org/") == std::string_view::npos)
        return Error{ErrorCode::Unsupported,
                     fmt::format("`$schema` at # names \"{}\", which is no draft of json-schema.org", name)};
      document_.reference_hides_siblings_ = name.find("draft-0") != std::string_view::npos;
    }
  }
  resources_[""] = &root;
  if (Status done = visit(root, ""); !done) return done;
  // Targets may lie where no keyword leads, as in #/components/schemas: they are visited when they are found.
  for (size_t i = 0; i < references_.size(); ++i) {
    if (Status done = resolve(Reference(references_[i])); !done) return done;
  }
  return {};
}

Error SchemaIndexer::fault(const json::object& schema, std::string_view keyword,
                           std::string_view what) const {
  return {ErrorCode::InvalidArgument,
          fmt::format("`{}` at {} {}", keyword, document_.path_of(&schema), what)};
}

Status SchemaIndexer::visit(const json::value& schema, const std::string& base) {
  if (!visited_.insert(&schema).second) return {};
  if (visited_.size() > SchemaLimits::kSchemas)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the schema has more than {} subschemas", SchemaLimits::kSchemas)};
  (void)end_long_turn();
  const json::object* object = schema.if_object();
  return object == nullptr ? Status{} : visit_object(schema, base);
}

Status SchemaIndexer::visit_object(const json::value& self, std::string base) {
  const json::object& schema = self.get_object();
  const bool hides = document_.reference_hides_siblings_ && schema.contains("$ref");
  const json::value* id = schema.if_contains("$id");
  if (id == nullptr && document_.reference_hides_siblings_) id = schema.if_contains("id");
  if (id != nullptr && id->is_string() && !hides) {
    const std::string_view address = id->get_string();
    const std::string joined = join(base, address);
    if (!address.empty() && address[0] == '#')
      anchors_[joined] = &self;
    else
      resources_[base = std::string(without_fragment(joined))] = &self;
  }
  for (const auto& member : schema) {
    const Keyword* keyword = find_keyword(member.key());
    if (keyword == nullptr || (hides && member.key() != "$ref" && member.key() != "definitions")) continue;
    if (Status done = check_keyword(schema, *keyword, member.value()); !done) return done;
    if (keyword->name == "$ref" || keyword->name == "$dynamicRef" || keyword->name == "$recursiveRef")
      references_.push_back({&schema, base, keyword->name, member.value().get_string()});
    if (keyword->name == "$anchor" || keyword->name == "$dynamicAnchor") {
      anchors_[fmt::format("{}#{}", base, std::string_view(member.value().get_string()))] = &self;
      if (keyword->name == "$dynamicAnchor")
        dynamic_anchors_[std::string(member.value().get_string())].push_back(&self);
    }
    if (Status done = visit_children(*keyword, member.value(), base); !done) return done;
  }
  return {};
}

Status SchemaIndexer::check_keyword(const json::object& schema, const Keyword& keyword,
                                    const json::value& value) {
  const Verdict verdict = judge(keyword.shape, value);
  if (!verdict.fits) return fault(schema, keyword.name, fmt::format("must be {}", verdict.wanted));
  if (keyword.shape == KeywordShape::Pattern) return add_pattern(schema, keyword.name, value.get_string());
  if (keyword.name == "format") {
    const StringFormat* format = find_format(value.get_string());
    return format == nullptr || format->check.empty() ? Status()
                                                      : add_pattern(schema, keyword.name, format->check);
  }
  if (keyword.shape != KeywordShape::PatternMap) return {};
  for (const auto& member : value.get_object()) {
    if (Status done = add_pattern(schema, keyword.name, member.key()); !done) return done;
  }
  return {};
}

Status SchemaIndexer::add_pattern(const json::object& schema, std::string_view keyword,
                                  std::string_view source) {
  if (document_.patterns_.contains(std::string(source))) return {};
  Result<Regex> regex = Regex::compile(source);
  if (!regex) return fault(schema, keyword, fmt::format("cannot be used: {}", regex.error().message));
  document_.patterns_.emplace(std::string(source), std::move(*regex));
  return {};
}

Status SchemaIndexer::visit_children(const Keyword& keyword, const json::value& value,
                                     const std::string& base) {
  switch (keyword.shape) {
    case KeywordShape::Schema:
      return visit(value, base);
    case KeywordShape::Items:
    case KeywordShape::Schemas:
      if (!value.is_array()) return visit(value, base);
      for (const json::value& one : value.get_array()) {
        if (Status done = visit(one, base); !done) return done;
      }
      return {};
    case KeywordShape::SchemaMap:
    case KeywordShape::PatternMap:
    case KeywordShape::Dependencies:
      for (const auto& member : value.get_object()) {
        if (member.value().is_array()) continue;
        if (Status done = visit(member.value(), base); !done) return done;
      }
      return {};
    default:
      return {};
  }
}

const json::value* SchemaIndexer::find(const Reference& reference) const {
  const std::string address = join(reference.base, reference.text);
  const auto resource = resources_.find(std::string(without_fragment(address)));
  const size_t mark = address.find('#');
  const std::string fragment =
      mark == std::string::npos ? "" : percent_decoded(std::string_view(address).substr(mark + 1));
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = anchors_.find(address);
    return anchor == anchors_.end() ? nullptr : anchor->second;
  }
  return resource == resources_.end() || resource->second == nullptr ? nullptr
                                                                     : follow(*resource->second, fragment);
}

Status SchemaIndexer::resolve(const Reference& reference) {
  const json::value* target = find(reference);
  if (target == nullptr)
    return Error{ErrorCode::Unsupported,
                 fmt::format("`{}` at {} points to \"{}\", which is not in the schema", reference.keyword,
                             document_.path_of(reference.from), reference.text)};
  if (!is_schema(*target))
    return fault(*reference.from, reference.keyword,
                 fmt::format("points to \"{}\", which is no schema", reference.text));
  const size_t mark = reference.text.find('#');
  const bool is_dynamic = reference.keyword == "$dynamicRef" && mark != std::string_view::npos;
  if (is_dynamic) {
    const auto same = dynamic_anchors_.find(std::string(reference.text.substr(mark + 1)));
    if (same != dynamic_anchors_.end() && same->second.size() > 1)
      return Error{
          ErrorCode::Unsupported,
          fmt::format("`$dynamicRef` at {}: \"{}\" is the anchor of several schemas, which is not supported",
                      document_.path_of(reference.from), reference.text)};
  }
  document_.targets_[reference.from] = target;
  ++document_.references_[target];
  return visit(*target, reference.base);
}

}  // namespace sluice::grammar
