#include "grammar/schema/schema_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "grammar/schema/lowering.h"

namespace sluice::grammar {

const json::value* keyword_of(const Conjunct& part, std::string_view keyword) {
  return part.schema->get_object().if_contains(keyword);
}

Result<LoweredSchema> lower_schema(const std::shared_ptr<const SchemaDocument>& document,
                                   const LoweringOptions& options) {
  return Lowering(document, options).run();
}

Result<LoweredSchema> Lowering::run() {
  Result<json::value> root = lower({Conjunct{&document_->root()}});
  if (!root) return root.error();
  if (root->is_bool()) return Error{ErrorCode::InvalidArgument, "no value fits the schema"};
  json::object& out = root->get_object();
  json::object definitions;
  for (auto& [key, known] : known_) {
    if (!known.used) continue;
    if (!known.possible)
      return Error{ErrorCode::Unsupported, "the schema refers to itself where no value can fit"};
    definitions[known.name] = std::move(known.schema);
  }
  if (!definitions.empty()) out["$defs"] = std::move(definitions);
  return LoweredSchema{std::move(*root), std::move(unheld_)};
}

void Lowering::unheld(std::string_view keyword, const void* schema) {
  Unheld one{std::string(keyword), document_->path_of(schema)};
  const auto same = [&](const Unheld& other) {
    return other.keyword == one.keyword && other.path == one.path;
  };
  if (std::none_of(unheld_.begin(), unheld_.end(), same)) unheld_.push_back(std::move(one));
}

int64_t Lowering::least_of(const Conjunction& parts, std::string_view keyword) {
  int64_t least = 0;
  for (const Conjunct& part : parts) {
    if (const json::value* value = keyword_of(part, keyword)) least = std::max(least, count_of(*value));
  }
  return least;
}

int64_t Lowering::most_of(const Conjunction& parts, std::string_view keyword) {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const Conjunct& part : parts) {
    if (const json::value* value = keyword_of(part, keyword)) most = std::min(most, count_of(*value));
  }
  return most;
}

Result<json::value> Lowering::lower(const Conjunction& wanted) {
  Conjunction key = wanted;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto found = known_.find(key);
  if (found != known_.end()) {
    if (!found->second.possible) return json::value(false);
    found->second.used = true;
    return json::value{{"$ref", "#/$defs/" + found->second.name}};
  }
  // What a conjunction costs grows with the square of its parts.
  nodes_ += 1 + wanted.size() * wanted.size() / 64;
  if (nodes_ > LoweringLimits::kNodes)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the schema becomes more than {} parts once its alternatives are multiplied out",
                             LoweringLimits::kNodes)};
  if (depth_ >= LoweringLimits::kDepth)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the schema is nested deeper than {}", LoweringLimits::kDepth)};
  Known& known = known_[key];
  known.name = fmt::format("d{}", known_.size());
  ++depth_;
  Result<json::value> result = lower_new(wanted);
  --depth_;
  if (!result) return result;
  known.possible = !result->is_bool();
  known.schema = *result;
  return result;
}

std::optional<Conjunction> Lowering::flatten(const Conjunction& wanted) const {
  Conjunction parts, open = wanted;
  // A schema that is there already, with an alternative chosen or not, needs no second choice.
  const auto is_in = [](const Conjunction& list, const json::value* schema) {
    return std::any_of(list.begin(), list.end(), [&](const Conjunct& one) { return one.schema == schema; });
  };
  for (size_t i = 0; i < open.size(); ++i) {
    Conjunct one = open[i];
    if (const bool* verdict = one.schema->if_bool()) {
      if (!*verdict) return std::nullopt;
      continue;
    }
    if (is_in(parts, one.schema)) continue;
    const json::object& schema = one.schema->get_object();
    const bool is_done = (one.done & kReference) != 0;
    const json::value* target = document_->target(schema);
    const bool hidden = target != nullptr && document_->reference_hides_siblings();
    one.done |= kReference;
    if (!hidden) parts.push_back(one);
    if (is_done) continue;
    if (target != nullptr && !is_in(open, target)) open.push_back({target});
    const json::value* all = hidden ? nullptr : schema.if_contains("allOf");
    for (size_t j = 0; all != nullptr && j < all->get_array().size(); ++j) {
      if (const json::value* next = &all->get_array()[j]; !is_in(open, next)) open.push_back({next});
    }
  }
  return parts;
}

Result<json::value> Lowering::lower_new(const Conjunction& wanted) {
  std::optional<Conjunction> flat = flatten(wanted);
  if (!flat) return json::value(false);
  Conjunction& parts = *flat;
  for (const Conjunct& part : parts) {
    if (const json::value* value = keyword_of(part, "const")) return lower_values(parts, {*value});
    if (const json::value* values = keyword_of(part, "enum")) return lower_values(parts, values->get_array());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if ((parts[i].done & kDependencies) != 0) continue;
    const json::value* alternatives = dependencies_of(parts[i].schema->get_object());
    parts[i].done |= kDependencies;
    if (alternatives == nullptr) continue;
    parts.push_back({alternatives});
    return lower(parts);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if ((parts[i].done & kAnyOf) == 0 && keyword_of(parts[i], "anyOf") != nullptr)
      return lower_options(parts, i, false);
    if ((parts[i].done & kOneOf) == 0 && keyword_of(parts[i], "oneOf") != nullptr)
      return lower_options(parts, i, true);
  }
  return lower_typed(parts);
}

Result<json::value> Lowering::lower_values(const Conjunction& parts, const json::array& values) {
  json::array kept;
  for (const json::value& value : values) {
    bool fits = true;
    for (const Conjunct& part : parts) {
      Result<std::optional<Violation>> violation = validator_.check(value, *part.schema);
      if (!violation) return violation.error();
      fits = fits && !violation->has_value();
    }
    const bool known =
        std::any_of(kept.begin(), kept.end(), [&](const json::value& one) { return same_value(one, value); });
    if (fits && !known) kept.push_back(value);
  }
  if (kept.empty()) return json::value(false);
  nodes_ += kept.size();
  return json::value{{"enum", std::move(kept)}};
}

Result<json::value> Lowering::lower_options(const Conjunction& parts, size_t index, bool exactly_one) {
  const json::value* options = keyword_of(parts[index], exactly_one ? "oneOf" : "anyOf");
  json::array lowered;
  bool disjoint = true;
  for (const json::value& option : options->get_array()) {
    Conjunction with = parts;
    with[index].done |= exactly_one ? kOneOf : kAnyOf;
    with.push_back({&option});
    Result<json::value> one = lower(with);
    if (!one) return one;
    if (one->is_bool()) continue;
    const bool is_new = std::find(lowered.begin(), lowered.end(), *one) == lowered.end();
    disjoint = disjoint && is_new;
    if (is_new) lowered.push_back(std::move(*one));
  }
  if (lowered.size() > LoweringLimits::kAlternatives)
    return Error{
        ErrorCode::LimitExceeded,
        fmt::format("`{}` at {} has {} alternatives; the limit is {}", exactly_one ? "oneOf" : "anyOf",
                    document_->path_of(parts[index].schema), lowered.size(), LoweringLimits::kAlternatives)};
  for (size_t i = 0; exactly_one && i < lowered.size(); ++i) {
    for (size_t j = 0; j < i; ++j) disjoint = disjoint && are_disjoint(lowered[i], lowered[j]);
  }
  if (exactly_one && !disjoint) unheld("oneOf", parts[index].schema);
  if (lowered.empty()) return json::value(false);
  if (lowered.size() == 1) return std::move(lowered[0]);
  return json::value{{"anyOf", std::move(lowered)}};
}

const json::value* Lowering::dependencies_of(const json::object& schema) {
  const auto known = dependencies_.find(&schema);
  if (known != dependencies_.end()) return known->second;
  json::array all;
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const json::value* map = schema.if_contains(keyword);
    if (map == nullptr) continue;
    // Each name doubles the alternatives.
    if (map->get_object().size() > 6) {
      unheld(keyword, &schema);
      continue;
    }
    for (const auto& dependency : map->get_object()) {
      // Copies would lose what references of the schema point to.
      if (!dependency.value().is_array()) {
        unheld(keyword, &schema);
        continue;
      }
      json::array names = dependency.value().get_array();
      names.emplace_back(dependency.key());
      json::object absent{{"type", "object"}, {"properties", json::object{{dependency.key(), false}}}};
      json::object present{{"type", "object"}, {"required", std::move(names)}};
      all.push_back(json::object{{"anyOf", json::array{std::move(absent), std::move(present)}}});
    }
  }
  const json::value* made = nullptr;
  if (!all.empty()) made = &made_.emplace_back(json::object{{"allOf", std::move(all)}});
  dependencies_[&schema] = made;
  return made;
}

}  // namespace sluice::grammar
