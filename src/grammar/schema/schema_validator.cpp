#include "grammar/schema/schema_validator.h"

#include <fmt/format.h>

#include <functional>
#include <string_view>

#include "grammar/schema/formats.h"

namespace sluice::grammar {

namespace {

constexpr int kMostDepth = 400;
constexpr int64_t kMostSteps = 4'000'000;

// Characters of a text that is valid UTF-8.
int64_t characters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

// Which members or items some keyword has looked at.
using Seen = std::vector<bool>;

void merge(Seen& into, const Seen& from) {
  for (size_t i = 0; i < into.size() && i < from.size(); ++i) into[i] = into[i] || from[i];
}

size_t parts_of(const json::value& value) {
  if (const json::object* object = value.if_object()) return object->size();
  if (const json::array* array = value.if_array()) return array->size();
  return 0;
}

class Check {
 public:
  Check(const SchemaDocument& document, bool quiet) : document_(document), quiet_(quiet ? 1 : 0) {}

  // Whether the value fits; where not, violation() says why. `seen` gets what was evaluated.
  bool fits(const json::value& schema, const json::value& value, Seen& seen) {
    if (failed_) return false;
    if (++steps_ > kMostSteps || depth_ > kMostDepth) {
      failed_ = true;
      return false;
    }
    if (const bool* verdict = schema.if_bool()) return *verdict || refuse("false", schema);
    ++depth_;
    const bool result = fits_object(schema.get_object(), value, seen);
    --depth_;
    return result;
  }
  bool failed() const { return failed_; }
  const Violation& violation() const { return violation_; }

 private:
  bool refuse(std::string_view keyword, const json::value& schema) { return refuse_at(keyword, &schema); }
  bool refuse_at(std::string_view keyword, const void* schema) {
    if (quiet_ == 0 && violation_.keyword.empty())
      violation_ = {std::string(keyword), document_.path_of(schema), where_};
    return false;
  }
  // A check whose failure is no failure of the whole.
  bool tries(const json::value& schema, const json::value& value, Seen& seen) {
    ++quiet_;
    const bool result = fits(schema, value, seen);
    --quiet_;
    return result;
  }
  bool fits_part(const json::value& schema, const json::value& value, std::string_view name) {
    const size_t before = where_.size();
    where_ += '/';
    where_ += name;
    Seen seen(parts_of(value));
    const bool result = fits(schema, value, seen);
    where_.resize(before);
    return result;
  }
  bool matches(std::string_view pattern, std::string_view text) {
    steps_ += static_cast<int64_t>(text.size()) / 64;
    const Result<bool> found = document_.regex(pattern).search(text);
    if (!found) failed_ = true;
    return found && *found;
  }

  bool fits_object(const json::object& schema, const json::value& value, Seen& seen) {
    if (const json::value* target = document_.target(schema)) {
      if (!fits(*target, value, seen)) return false;
      if (document_.reference_hides_siblings()) return true;
    }
    return fits_any_type(schema, value) && fits_branches(schema, value, seen) &&
           fits_typed(schema, value, seen);
  }

  bool fits_typed(const json::object& schema, const json::value& value, Seen& seen) {
    if (value.is_number()) return fits_number(schema, value);
    if (value.is_string()) return fits_string(schema, value.get_string());
    if (const json::array* array = value.if_array()) return fits_array(schema, *array, seen);
    if (const json::object* object = value.if_object())
      return fits_members(schema, *object, seen) && fits_dependencies(schema, value, seen) &&
             fits_unevaluated(schema, *object, seen);
    return true;
  }

  bool fits_any_type(const json::object& schema, const json::value& value) {
    if (const json::value* type = schema.if_contains("type")) {
      bool found = false;
      if (type->is_string())
        found = has_type(value, type->get_string());
      else
        for (const json::value& one : type->get_array()) found = found || has_type(value, one.get_string());
      if (!found) return refuse_at("type", &schema);
    }
    if (const json::value* wanted = schema.if_contains("const");
        wanted != nullptr && !same_value(value, *wanted))
      return refuse_at("const", &schema);
    const json::value* options = schema.if_contains("enum");
    if (options == nullptr) return true;
    const json::array& all = options->get_array();
    const std::less<> before;
    const bool is_one_of_them = !all.empty() && !before(&value, &all.front()) && !before(&all.back(), &value);
    if (is_one_of_them) return true;
    for (const json::value& option : all) {
      if (same_value(value, option)) return true;
    }
    return refuse_at("enum", &schema);
  }

  bool fits_branches(const json::object& schema, const json::value& value, Seen& seen) {
    if (const json::value* all = schema.if_contains("allOf")) {
      for (const json::value& one : all->get_array()) {
        Seen inner(seen.size());
        if (!fits(one, value, inner)) return false;
        merge(seen, inner);
      }
    }
    if (!fits_some(schema, "anyOf", value, seen) || !fits_some(schema, "oneOf", value, seen)) return false;
    if (const json::value* none = schema.if_contains("not")) {
      Seen ignored(seen.size());
      if (tries(*none, value, ignored)) return refuse_at("not", &schema);
      if (failed_) return false;
    }
    const json::value* condition = schema.if_contains("if");
    if (condition == nullptr) return true;
    Seen inner(seen.size());
    const bool holds = tries(*condition, value, inner);
    if (failed_) return false;
    if (holds) merge(seen, inner);
    const json::value* branch = schema.if_contains(holds ? "then" : "else");
    if (branch == nullptr) return true;
    Seen chosen(seen.size());
    if (!fits(*branch, value, chosen)) return false;
    merge(seen, chosen);
    return true;
  }

  // anyOf: at least one; oneOf: exactly one.
  bool fits_some(const json::object& schema, std::string_view keyword, const json::value& value, Seen& seen) {
    const json::value* options = schema.if_contains(keyword);
    if (options == nullptr) return true;
    int found = 0;
    for (const json::value& option : options->get_array()) {
      Seen inner(seen.size());
      if (!tries(option, value, inner)) continue;
      merge(seen, inner);
      ++found;
    }
    if (failed_) return false;
    return found == 1 || (found > 1 && keyword == "anyOf") || refuse_at(keyword, &schema);
  }

  bool fits_number(const json::object& schema, const json::value& value) {
    const auto bound = [&](std::string_view keyword) { return schema.if_contains(keyword); };
    // Draft 4: a boolean beside the bound.
    const auto excludes = [&](std::string_view keyword) {
      const json::value* flag = bound(keyword);
      return flag != nullptr && flag->is_bool() && flag->get_bool();
    };
    if (const json::value* least = bound("minimum"))
      if (is_less(value, *least) || (excludes("exclusiveMinimum") && !is_less(*least, value)))
        return refuse_at("minimum", &schema);
    if (const json::value* most = bound("maximum"))
      if (is_less(*most, value) || (excludes("exclusiveMaximum") && !is_less(value, *most)))
        return refuse_at("maximum", &schema);
    if (const json::value* least = bound("exclusiveMinimum");
        least != nullptr && least->is_number() && !is_less(*least, value))
      return refuse_at("exclusiveMinimum", &schema);
    if (const json::value* most = bound("exclusiveMaximum");
        most != nullptr && most->is_number() && !is_less(value, *most))
      return refuse_at("exclusiveMaximum", &schema);
    const json::value* divisor = bound("multipleOf");
    return divisor == nullptr || is_multiple(value, *divisor) || refuse_at("multipleOf", &schema);
  }

  bool fits_string(const json::object& schema, std::string_view text) {
    const json::value* least = schema.if_contains("minLength");
    const json::value* most = schema.if_contains("maxLength");
    const int64_t length = least != nullptr || most != nullptr ? characters(text) : 0;
    if (least != nullptr && length < count_of(*least)) return refuse_at("minLength", &schema);
    if (most != nullptr && length > count_of(*most)) return refuse_at("maxLength", &schema);
    const json::value* pattern = schema.if_contains("pattern");
    if (pattern != nullptr && !matches(pattern->get_string(), text)) return refuse_at("pattern", &schema);
    const json::value* name = schema.if_contains("format");
    if (name != nullptr && name->get_string() == "regex" && !Regex::compile(text))
      return refuse_at("format", &schema);
    const StringFormat* format = name == nullptr ? nullptr : find_format(name->get_string());
    const bool checked = format != nullptr && !format->check.empty();
    return !checked || matches(format->check, text) || refuse_at("format", &schema);
  }

  bool fits_array(const json::object& schema, const json::array& array, Seen& seen) {
    const auto size = static_cast<int64_t>(array.size());
    if (const json::value* least = schema.if_contains("minItems");
        least != nullptr && size < count_of(*least))
      return refuse_at("minItems", &schema);
    if (const json::value* most = schema.if_contains("maxItems"); most != nullptr && size > count_of(*most))
      return refuse_at("maxItems", &schema);
    const json::value* unique = schema.if_contains("uniqueItems");
    if (unique != nullptr && unique->get_bool() && !is_unique(array))
      return refuse_at("uniqueItems", &schema);
    if (!fits_items(schema, array, seen) || !fits_contains(schema, array, seen)) return false;
    const json::value* rest = schema.if_contains("unevaluatedItems");
    for (size_t i = 0; rest != nullptr && i < array.size(); ++i) {
      if (!seen[i] && !fits_part(*rest, array[i], std::to_string(i))) return false;
      seen[i] = true;
    }
    return true;
  }

  bool is_unique(const json::array& array) {
    for (size_t i = 0; i < array.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (++steps_ > kMostSteps) failed_ = true;
        if (failed_ || same_value(array[i], array[j])) return false;
      }
    }
    return true;
  }

  bool fits_items(const json::object& schema, const json::array& array, Seen& seen) {
    const json::value* prefix = schema.if_contains("prefixItems");
    const json::value* items = schema.if_contains("items");
    if (items != nullptr && items->is_array()) {
      prefix = items;
      items = schema.if_contains("additionalItems");
    }
    const size_t fixed = prefix == nullptr ? 0 : prefix->get_array().size();
    for (size_t i = 0; i < array.size(); ++i) {
      const json::value* wanted = i < fixed ? &prefix->get_array()[i] : items;
      if (wanted == nullptr) break;
      if (!fits_part(*wanted, array[i], std::to_string(i))) return false;
      seen[i] = true;
    }
    return true;
  }

  bool fits_contains(const json::object& schema, const json::array& array, Seen& seen) {
    const json::value* wanted = schema.if_contains("contains");
    if (wanted == nullptr) return true;
    int64_t found = 0;
    for (size_t i = 0; i < array.size(); ++i) {
      Seen inner(parts_of(array[i]));
      if (!tries(*wanted, array[i], inner)) continue;
      ++found;
      seen[i] = true;
    }
    if (failed_) return false;
    const json::value* least = schema.if_contains("minContains");
    const json::value* most = schema.if_contains("maxContains");
    if (found < (least == nullptr ? 1 : count_of(*least)))
      return refuse_at(least == nullptr ? "contains" : "minContains", &schema);
    return most == nullptr || found <= count_of(*most) || refuse_at("maxContains", &schema);
  }

  bool fits_members(const json::object& schema, const json::object& object, Seen& seen) {
    const auto size = static_cast<int64_t>(object.size());
    if (const json::value* least = schema.if_contains("minProperties");
        least != nullptr && size < count_of(*least))
      return refuse_at("minProperties", &schema);
    if (const json::value* most = schema.if_contains("maxProperties");
        most != nullptr && size > count_of(*most))
      return refuse_at("maxProperties", &schema);
    if (const json::value* required = schema.if_contains("required")) {
      for (const json::value& name : required->get_array()) {
        if (!object.contains(name.get_string())) return refuse_at("required", &schema);
      }
    }
    size_t index = 0;
    for (const auto& member : object) {
      if (!fits_member(schema, member, seen, index++)) return false;
    }
    return true;
  }

  bool fits_member(const json::object& schema, const json::key_value_pair& member, Seen& seen, size_t index) {
    bool named = false;
    if (const json::value* names = schema.if_contains("propertyNames")) {
      const json::value name(member.key());
      if (!fits_part(*names, name, member.key())) return false;
    }
    if (const json::value* properties = schema.if_contains("properties")) {
      if (const json::value* wanted = properties->get_object().if_contains(member.key())) {
        named = true;
        if (!fits_part(*wanted, member.value(), member.key())) return false;
      }
    }
    if (const json::value* patterns = schema.if_contains("patternProperties")) {
      for (const auto& pattern : patterns->get_object()) {
        if (!matches(pattern.key(), member.key())) continue;
        named = true;
        if (!fits_part(pattern.value(), member.value(), member.key())) return false;
      }
    }
    const json::value* rest = schema.if_contains("additionalProperties");
    if (!named && rest != nullptr) {
      named = true;
      if (!fits_part(*rest, member.value(), member.key())) return refuse_at("additionalProperties", &schema);
    }
    if (named) seen[index] = true;
    return !failed_;
  }

  bool fits_dependencies(const json::object& schema, const json::value& value, Seen& seen) {
    const json::object& object = value.get_object();
    for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const json::value* dependencies = schema.if_contains(keyword);
      if (dependencies == nullptr) continue;
      for (const auto& dependency : dependencies->get_object()) {
        if (!object.contains(dependency.key())) continue;
        if (!fits_dependency(dependency.value(), value, seen)) return refuse_at(keyword, &schema);
      }
    }
    return true;
  }

  bool fits_dependency(const json::value& wanted, const json::value& value, Seen& seen) {
    if (const json::array* names = wanted.if_array()) {
      for (const json::value& name : *names) {
        if (!value.get_object().contains(name.get_string())) return false;
      }
      return true;
    }
    Seen inner(seen.size());
    if (!fits(wanted, value, inner)) return false;
    merge(seen, inner);
    return true;
  }

  bool fits_unevaluated(const json::object& schema, const json::object& object, Seen& seen) {
    const json::value* rest = schema.if_contains("unevaluatedProperties");
    if (rest == nullptr) return true;
    size_t index = 0;
    for (const auto& member : object) {
      if (!seen[index] && !fits_part(*rest, member.value(), member.key()))
        return refuse_at("unevaluatedProperties", &schema);
      seen[index++] = true;
    }
    return true;
  }

  const SchemaDocument& document_;
  std::string where_;  // path of the value
  Violation violation_;
  int quiet_ = 0, depth_ = 0;  // quiet: nobody asks why
  int64_t steps_ = 0;
  bool failed_ = false;  // a limit was reached: nothing can be said
};

Error too_much() {
  return {ErrorCode::LimitExceeded,
          fmt::format("checking a value against its schema takes more than {} steps or {} levels", kMostSteps,
                      kMostDepth)};
}

}  // namespace

Result<bool> SchemaValidator::fits(const json::value& value, const json::value& schema) const {
  Check check(*document_, true);
  Seen seen(parts_of(value));
  const bool fits = check.fits(schema, value, seen);
  if (check.failed()) return too_much();
  return fits;
}

Result<std::optional<Violation>> SchemaValidator::check(const json::value& value,
                                                        const json::value& schema) const {
  Check check(*document_, false);
  Seen seen(parts_of(value));
  const bool fits = check.fits(schema, value, seen);
  if (check.failed()) return too_much();
  if (fits) return std::optional<Violation>();
  return std::optional<Violation>(check.violation());
}

}  // namespace sluice::grammar
