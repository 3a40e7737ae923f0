// "normalizer" and "pre_tokenizer" of tokenizer.json.
#include <fmt/format.h>

#include "tokenizer/loaders/json_fields.h"
#include "tokenizer/loaders/tokenizer_json.h"
#include "tokenizer/pre_tokenizer_names.h"

namespace sluice::tokenizer {

namespace {

Error unsupported(std::string_view part, std::string_view type) {
  return {ErrorCode::Unsupported,
          fmt::format("tokenizer.json: {} of type '{}' is not supported", part, type)};
}

// Calls `parse(element, depth + 1)` for each element of a sequence.
template <class Parse>
Status parse_sequence(JsonFields& fields, std::string_view key, int depth, const Parse& parse) {
  const json::array* elements = fields.array(key);
  if (!fields.status()) return fields.status();
  if (elements == nullptr) return {};
  if (depth >= deepest_sequence) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("tokenizer.json: sequences nest deeper than {}", deepest_sequence)};
  }
  for (const json::value& element : *elements) {
    if (Status status = parse(element, depth + 1); !status) return status;
  }
  return {};
}

void push_bert(JsonFields& fields, std::vector<NormalizerStep>& steps) {
  const bool lowercases = fields.flag("lowercase", true);
  if (fields.flag("clean_text", true)) steps.emplace_back(CleanText{});
  if (fields.flag("handle_chinese_chars", true)) steps.emplace_back(SpaceChinese{});
  if (fields.flag("strip_accents", lowercases)) {
    steps.emplace_back(unicode::UnicodeForm::Nfd);
    steps.emplace_back(RemoveCategories{unicode::set_of(unicode::Category::Mn)});
  }
  if (lowercases) steps.emplace_back(Lowercase{});
}

Status push_precompiled(JsonFields& fields, std::vector<NormalizerStep>& steps) {
  const std::string encoded = fields.text("precompiled_charsmap", "");
  if (!fields.status() || encoded.empty()) return fields.status();
  auto blob = decode_base64(encoded, "precompiled_charsmap");
  if (!blob) return blob.error();
  auto map = Charsmap::parse(*blob);
  if (!map) return map.error();
  auto cluster = unicode::Pattern::compile("\\X");
  if (!cluster) return cluster.error();
  steps.emplace_back(
      PrecompiledClusters{std::make_shared<const Charsmap>(std::move(*map)), std::move(*cluster)});
  return {};
}

Status push_normalizer(JsonFields& fields, std::string_view type, std::vector<NormalizerStep>& steps) {
  if (type == "NFC") {
    steps.emplace_back(unicode::UnicodeForm::Nfc);
  } else if (type == "NFD") {
    steps.emplace_back(unicode::UnicodeForm::Nfd);
  } else if (type == "NFKC") {
    steps.emplace_back(unicode::UnicodeForm::Nfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(unicode::UnicodeForm::Nfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps.emplace_back(RemoveCategories{unicode::sets::marks});
  } else if (type == "Strip") {
    steps.emplace_back(StripSpaces{fields.flag("strip_left", true), fields.flag("strip_right", true)});
  } else if (type == "Prepend") {
    steps.emplace_back(Prepend{fields.text("prepend", "")});
  } else if (type == "Nmt") {
    steps.emplace_back(NmtRules{});
  } else if (type == "ByteLevel") {
    steps.emplace_back(MapBytes{});
  } else if (type == "BertNormalizer") {
    push_bert(fields, steps);
  } else if (type == "Precompiled") {
    return push_precompiled(fields, steps);
  } else if (type == "Replace") {
    auto pattern = parse_pattern(fields.value("pattern"), "normalizer Replace");
    if (!pattern) return pattern.error();
    steps.emplace_back(ReplacePattern{std::move(*pattern), fields.text("content", "")});
  } else {
    return unsupported("normalizer", type);
  }
  return fields.status();
}

Status parse_normalizer_at(const json::value& value, int depth, std::vector<NormalizerStep>& steps) {
  if (value.is_null()) return {};
  if (!value.is_object()) return Error{ErrorCode::Corrupt, "tokenizer.json: a normalizer must be an object"};
  JsonFields fields(value.get_object(), "tokenizer.json: normalizer");
  const std::string type = fields.text("type", "");
  if (!fields.status()) return fields.status();
  if (type != "Sequence") return push_normalizer(fields, type, steps);
  return parse_sequence(fields, "normalizers", depth, [&](const json::value& element, int next) {
    return parse_normalizer_at(element, next, steps);
  });
}

Status push_split(std::string_view pattern, SplitBehavior behavior, bool is_inverted,
                  std::vector<PreTokenizerStep>& steps) {
  auto step = make_split(pattern, behavior, is_inverted);
  if (!step) return step.error();
  steps.push_back(std::move(*step));
  return {};
}

Status push_byte_level(JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
  if (fields.flag("add_prefix_space", true)) steps.emplace_back(PrefixStep{" ", false});
  if (fields.flag("use_regex", true)) {
    if (Status status = push_split(byte_level_pattern, SplitBehavior::Isolated, false, steps); !status)
      return status;
  }
  steps.emplace_back(MapBytesStep{});
  return fields.status();
}

Status push_metaspace(JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
  const std::string mark = fields.text("replacement", "\xE2\x96\x81");
  std::string scheme = fields.text("prepend_scheme", "always");
  if (!fields.flag("add_prefix_space", true)) scheme = "never";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    fields.fail(fmt::format("prepend_scheme '{}' is none of always, first, never", scheme));
  }
  steps.emplace_back(ReplaceStep{' ', mark});
  if (scheme != "never") steps.emplace_back(PrefixStep{mark, scheme == "first"});
  if (!fields.flag("split", true)) return fields.status();
  auto pattern = unicode::Pattern::literal(mark);
  if (!pattern) return pattern.error();
  steps.emplace_back(SplitStep{std::move(*pattern), SplitBehavior::MergedWithNext, false});
  return fields.status();
}

Status push_split_of(JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
  const auto behavior = parse_behavior(fields.text("behavior", ""));
  if (!behavior) return behavior.error();
  const bool is_inverted = fields.flag("invert", false);
  const json::value* value = fields.value("pattern");
  const json::value* regex =
      value != nullptr && value->is_object() ? value->get_object().if_contains("Regex") : nullptr;
  if (regex != nullptr && regex->is_string()) {
    const json::string& text = regex->get_string();
    return push_split({text.data(), text.size()}, *behavior, is_inverted, steps);
  }
  auto pattern = parse_pattern(value, "pre_tokenizer Split");
  if (!pattern) return pattern.error();
  steps.emplace_back(SplitStep{std::move(*pattern), *behavior, is_inverted});
  return fields.status();
}

Status push_delimiter(JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
  auto pattern = unicode::Pattern::literal(fields.text("delimiter", " "));
  if (!pattern) return pattern.error();
  steps.emplace_back(SplitStep{std::move(*pattern), SplitBehavior::Removed, false});
  return fields.status();
}

Status push_simple(JsonFields& fields, std::string_view type, std::vector<PreTokenizerStep>& steps) {
  if (type == "Digits") {
    const bool is_each = fields.flag("individual_digits", false);
    return push_split(R"(\p{N})", is_each ? SplitBehavior::Isolated : SplitBehavior::Contiguous, false,
                      steps);
  }
  if (type == "Punctuation") {
    const auto behavior = parse_behavior(fields.text("behavior", "Isolated"));
    if (!behavior) return behavior.error();
    return push_split(punctuation_pattern, *behavior, false, steps);
  }
  if (type == "Whitespace") return push_split(R"(\w+|[^\w\s]+)", SplitBehavior::Removed, true, steps);
  if (type == "WhitespaceSplit") return push_split(R"(\s)", SplitBehavior::Removed, false, steps);
  if (type == "BertPreTokenizer") {
    for (const NamedSplit& split : bert_splits) {
      if (Status status = push_split(split.pattern, split.behavior, false, steps); !status) return status;
    }
    return {};
  }
  if (type == "FixedLength") {
    const int64_t length = fields.integer("length", 5);
    if (length < 1) fields.fail(fmt::format("length {} must be positive", length));
    steps.emplace_back(FixedLengthStep{static_cast<size_t>(std::max<int64_t>(length, 1))});
    return fields.status();
  }
  return unsupported("pre_tokenizer", type);
}

Status push_pre_tokenizer(JsonFields& fields, std::string_view type, std::vector<PreTokenizerStep>& steps) {
  if (type == "ByteLevel") return push_byte_level(fields, steps);
  if (type == "Metaspace") return push_metaspace(fields, steps);
  if (type == "Split") return push_split_of(fields, steps);
  if (type == "Delimiter" || type == "CharDelimiterSplit") return push_delimiter(fields, steps);
  const Status status = push_simple(fields, type, steps);
  return status.ok() ? fields.status() : status;
}

Status parse_pre_tokenizer_at(const json::value& value, int depth, std::vector<PreTokenizerStep>& steps) {
  if (value.is_null()) return {};
  if (!value.is_object())
    return Error{ErrorCode::Corrupt, "tokenizer.json: a pre_tokenizer must be an object"};
  JsonFields fields(value.get_object(), "tokenizer.json: pre_tokenizer");
  const std::string type = fields.text("type", "");
  if (!fields.status()) return fields.status();
  if (type != "Sequence") return push_pre_tokenizer(fields, type, steps);
  return parse_sequence(fields, "pretokenizers", depth, [&](const json::value& element, int next) {
    return parse_pre_tokenizer_at(element, next, steps);
  });
}

}  // namespace

Status parse_normalizer(const json::value& value, std::vector<NormalizerStep>& steps) {
  return parse_normalizer_at(value, 0, steps);
}

Status parse_pre_tokenizer(const json::value& value, std::vector<PreTokenizerStep>& steps) {
  return parse_pre_tokenizer_at(value, 0, steps);
}

Result<unicode::Pattern> parse_pattern(const json::value* value, std::string_view what) {
  if (value != nullptr && value->is_object()) {
    for (const std::string_view key : {"String", "Regex"}) {
      const json::value* text = value->get_object().if_contains(json::string_view(key.data(), key.size()));
      if (text == nullptr || !text->is_string()) continue;
      const std::string_view source(text->get_string().data(), text->get_string().size());
      return key == "String" ? unicode::Pattern::literal(source) : unicode::Pattern::compile(source);
    }
  }
  return Error{ErrorCode::Corrupt,
               fmt::format("tokenizer.json: {}: 'pattern' must hold a String or a Regex", what)};
}

Result<SplitBehavior> parse_behavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  return Error{ErrorCode::Unsupported, fmt::format("tokenizer.json: split behavior '{}' is not known", name)};
}

}  // namespace sluice::tokenizer
