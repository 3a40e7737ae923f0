#include "grammar/schema/schema_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/system/thread_turn.h"
#include "grammar/schema/keywords.h"
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
    if (known.state == Known::State::Impossible)
      return Error{ErrorCode::Unsupported, "the schema refers to itself where no value can fit"};
    definitions[known.name] = std::move(known.schema);
  }
  if (!definitions.empty()) out["$defs"] = std::move(definitions);
  return LoweredSchema{std::move(*root), unheld_list()};
}

std::vector<Unheld> Lowering::unheld_list() const {
  std::vector<const void*> schemas;
  for (const auto& [keyword, schema] : unheld_) schemas.push_back(schema);
  std::vector<std::string> paths = document_->paths_of(schemas);
  std::vector<Unheld> list;
  for (size_t i = 0; i < paths.size(); ++i)
    list.push_back({std::string(unheld_[i].first), std::move(paths[i])});
  return list;
}

void Lowering::unheld(std::string_view keyword, const void* schema) {
  if (unheld_seen_.emplace(keyword, schema).second) unheld_.emplace_back(keyword, schema);
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

namespace {

// Members that say nothing of the value themselves.
bool is_mute(std::string_view key) {
  return key == "$defs" || key == "definitions" || key == "$id" || key == "$anchor" ||
         key == "$dynamicAnchor" || (key != "const" && find_keyword(key) == nullptr);
}

// Whether all that it says was multiplied out.
bool is_exhausted(const Conjunct& part) {
  const json::object* schema = part.schema->if_object();
  if (schema == nullptr || part.done == 0) return false;
  return std::all_of(schema->begin(), schema->end(), [&](const auto& member) {
    const std::string_view key = member.key();
    const bool refers = key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || key == "allOf";
    const bool depends = key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies";
    const uint8_t bit = key == "anyOf"   ? kAnyOf
                        : key == "oneOf" ? kOneOf
                        : depends        ? kDependencies
                        : refers         ? kReference
                                         : 0;
    return (part.done & bit) != 0 || is_mute(key);
  });
}

bool only_refers(const json::object& schema) {
  return std::all_of(schema.begin(), schema.end(), [](const auto& member) {
    const std::string_view key = member.key();
    return key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || is_mute(key);
  });
}

// Such are cheaper to repeat than to refer to.
bool is_small(const json::value& lowered) {
  const json::object& schema = lowered.get_object();
  const json::value* values = schema.if_contains("enum");
  return (schema.contains("type") && *schema.if_contains("type") != "object" &&
          *schema.if_contains("type") != "array") ||
         (values != nullptr && values->get_array().size() <= 4) || schema.empty();
}

}  // namespace

Conjunction Lowering::simplified(const Conjunction& given) const {
  Conjunction simple;
  for (Conjunct one : given) {
    for (int hops = 0; one.done == 0 && one.schema->is_object() && hops < 64; ++hops) {
      const json::object& schema = one.schema->get_object();
      const json::value* target = document_->target(schema);
      if (target == nullptr || !(document_->reference_hides_siblings() || only_refers(schema))) break;
      one.schema = target;
    }
    if (!is_exhausted(one)) simple.push_back(one);
  }
  return simple;
}

json::value Lowering::refer_to(Known& known) {
  if (known.state == Known::State::Defined && !known.used && is_small(known.schema)) return known.schema;
  known.used = true;
  return json::value{{"$ref", "#/$defs/" + known.name}};
}

const json::value* Lowering::resolve(const json::value& lowered) const {
  const json::object* object = lowered.if_object();
  const json::value* reference = object == nullptr ? nullptr : object->if_contains("$ref");
  if (reference == nullptr) return &lowered;
  const auto found = defined_.find(std::string(reference->get_string()));
  return found == defined_.end() ? nullptr : &found->second->schema;
}

Result<json::value> Lowering::lower(const Conjunction& given) {
  const Conjunction wanted = simplified(given);
  Conjunction key = wanted;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [place, is_new] = known_.try_emplace(key);
  Known& known = place->second;
  if (!is_new && known.state == Known::State::Impossible) return json::value(false);
  if (!is_new && known.state != Known::State::Inlined) return refer_to(known);
  // What a conjunction costs grows with the square of its parts.
  nodes_ += 1 + wanted.size() * wanted.size() / 64;
  (void)end_long_turn();
  if (nodes_ > LoweringLimits::kNodes)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the schema becomes more than {} parts once its alternatives are multiplied out",
                             LoweringLimits::kNodes)};
  if (depth_ >= LoweringLimits::kDepth)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("the schema is nested deeper than {}", LoweringLimits::kDepth)};
  if (is_new) known.name = fmt::format("d{}", known_.size());
  known.state = Known::State::Open;
  ++depth_;
  Result<json::value> result = lower_new(wanted);
  --depth_;
  if (!result) return result;
  if (result->is_bool()) {
    known.state = Known::State::Impossible;
    return result;
  }
  const bool is_shared = key.size() == 1 && document_->references_to(*key[0].schema) > 1;
  // What is met again, having been inlined, becomes a definition.
  if (is_new && !is_shared && !known.used) {
    known.state = Known::State::Inlined;
    return result;
  }
  known.state = Known::State::Defined;
  known.schema = std::move(*result);
  defined_["#/$defs/" + known.name] = &known;
  return refer_to(known);
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
  std::unordered_multimap<size_t, size_t> places;  // of kept values by hash
  for (const json::value& value : values) {
    bool fits = true;
    for (const Conjunct& part : parts) {
      const Result<bool> checked = validator_.fits(value, *part.schema);
      if (!checked) return checked.error();
      fits = fits && *checked;
    }
    if (!fits) continue;
    const size_t hash = hash_of(value);
    const auto [first, last] = places.equal_range(hash);
    const bool known =
        std::any_of(first, last, [&](const auto& place) { return same_value(kept[place.second], value); });
    if (known) continue;
    places.emplace(hash, kept.size());
    kept.push_back(value);
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
  const Resolve resolve_all = [this](const json::value& one) { return resolve(one); };
  for (size_t i = 0; exactly_one && disjoint && i < lowered.size(); ++i) {
    for (size_t j = 0; j < i; ++j) disjoint = disjoint && are_disjoint(lowered[i], lowered[j], resolve_all);
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
