// "decoder" and "post_processor" of tokenizer.json.
#include <fmt/format.h>

#include "tokenizer/loaders/json_fields.h"
#include "tokenizer/loaders/tokenizer_json.h"
#include "unicode/unicode.h"

namespace sluice::tokenizer {

namespace {

Error too_deep() {
  return {ErrorCode::LimitExceeded,
          fmt::format("tokenizer.json: sequences nest deeper than {}", deepest_sequence)};
}

// Steps before the tokens are fused work on each token; stripping after that works on the whole text.
class DecoderParser {
 public:
  explicit DecoderParser(TokenDecoder& decoder) : decoder_(decoder) {}

  Status parse(const json::value& value, int depth) {
    if (value.is_null()) return {};
    if (!value.is_object()) return Error{ErrorCode::Corrupt, "tokenizer.json: a decoder must be an object"};
    if (depth > deepest_sequence) return too_deep();
    JsonFields fields(value.get_object(), "tokenizer.json: decoder");
    const std::string type = fields.text("type", "");
    if (type != "Sequence") {
      const Status status = push(fields, type);
      return status.ok() ? fields.status() : status;
    }
    const json::array* elements = fields.array("decoders");
    if (!fields.status() || elements == nullptr) return fields.status();
    for (const json::value& element : *elements) {
      if (Status status = parse(element, depth + 1); !status) return status;
    }
    return {};
  }

 private:
  Status push(JsonFields& fields, std::string_view type) {
    std::vector<DecoderStep>& steps = decoder_.steps;
    if (type == "Fuse") {
      is_fused_ = true;
    } else if (type == "ByteLevel") {
      steps.emplace_back(DecodeBytes{});
      is_fused_ = true;
    } else if (type == "ByteFallback") {
      steps.emplace_back(DecodeByteFallback{});
    } else if (type == "Metaspace") {
      const bool is_prefixed =
          fields.flag("add_prefix_space", true) && fields.text("prepend_scheme", "always") != "never";
      steps.emplace_back(DecodeMetaspace{fields.text("replacement", "\xE2\x96\x81"), is_prefixed});
    } else if (type == "WordPiece") {
      steps.emplace_back(DecodeWordPiece{fields.text("prefix", "##"), fields.flag("cleanup", true)});
    } else if (type == "BPEDecoder") {
      decoder_.word_suffix = fields.text("suffix", "</w>");
      steps.emplace_back(DecodeWordSuffix{decoder_.word_suffix});
    } else if (type == "CTC") {
      decoder_.drops_repeats = true;
      steps.emplace_back(DecodeCtc{fields.text("pad_token", "<pad>"),
                                   fields.text("word_delimiter_token", "|"), fields.flag("cleanup", true)});
    } else if (type == "Strip") {
      push_strip(fields);
    } else if (type == "Replace") {
      auto pattern = parse_pattern(fields.value("pattern"), "decoder Replace");
      if (!pattern) return pattern.error();
      steps.emplace_back(DecodeReplace{std::move(*pattern), fields.text("content", "")});
    } else {
      return Error{ErrorCode::Unsupported,
                   fmt::format("tokenizer.json: decoder of type '{}' is not supported", type)};
    }
    return {};
  }

  void push_strip(JsonFields& fields) {
    const std::string content = fields.text("content", " ");
    const int64_t start = fields.integer("start", 0);
    const int64_t stop = fields.integer("stop", 0);
    if (content.empty() || start < 0 || stop < 0)
      return fields.fail("Strip needs a character and counts from 0");
    const DecodeStrip strip{unicode::decode_utf8(content, 0).code, static_cast<size_t>(start),
                            static_cast<size_t>(stop)};
    if (is_fused_) {
      decoder_.trimmed = strip;
    } else {
      decoder_.steps.emplace_back(strip);
    }
  }

  TokenDecoder& decoder_;
  bool is_fused_ = false;
};

struct Affixes {
  std::vector<Token> prefix, suffix;
};

// The ids of a special token of a template.
Status push_template_ids(const json::object* specials, const json::value& piece, std::vector<Token>& out) {
  const json::value* name = piece.is_object() ? piece.get_object().if_contains("id") : nullptr;
  if (name == nullptr || !name->is_string()) {
    return Error{ErrorCode::Corrupt, "tokenizer.json: a special token of the template has no 'id'"};
  }
  const json::value* entry = specials != nullptr ? specials->if_contains(name->get_string()) : nullptr;
  const json::value* ids =
      entry != nullptr && entry->is_object() ? entry->get_object().if_contains("ids") : nullptr;
  if (ids == nullptr || !ids->is_array()) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("tokenizer.json: special token '{}' of the template has no ids",
                             std::string_view(name->get_string()))};
  }
  for (const json::value& id : ids->get_array()) {
    const int64_t number = id.is_int64() ? id.get_int64() : -1;
    if (number < 0 || number >= static_cast<int64_t>(largest_vocabulary)) {
      return Error{ErrorCode::Corrupt, "tokenizer.json: an id of the template is out of range"};
    }
    out.push_back(static_cast<Token>(number));
  }
  return {};
}

Status parse_template(JsonFields& fields, Affixes& out) {
  const json::object* specials = fields.object("special_tokens");
  const json::array* pieces = fields.array("single");
  if (!fields.status() || pieces == nullptr) return fields.status();
  bool is_before = true;
  for (const json::value& piece : *pieces) {
    const json::object* object = piece.if_object();
    if (object != nullptr && object->contains("Sequence")) {
      is_before = false;
      continue;
    }
    const json::value* special = object != nullptr ? object->if_contains("SpecialToken") : nullptr;
    if (special == nullptr)
      return Error{ErrorCode::Corrupt, "tokenizer.json: a piece of the template is not known"};
    Status status = push_template_ids(specials, *special, is_before ? out.prefix : out.suffix);
    if (!status) return status;
  }
  return {};
}

// ["[CLS]", 101]
Status push_pair(JsonFields& fields, std::string_view key, std::vector<Token>& out) {
  const json::array* pair = fields.array(key);
  const bool is_pair = pair != nullptr && pair->size() == 2 && (*pair)[1].is_int64();
  const int64_t id = is_pair ? (*pair)[1].get_int64() : -1;
  if (id < 0 || id >= static_cast<int64_t>(largest_vocabulary))
    fields.fail(fmt::format("'{}' must be [token, id]", key));
  else
    out.push_back(static_cast<Token>(id));
  return fields.status();
}

Status parse_processor(const json::value& value, int depth, Affixes& out) {
  if (value.is_null()) return {};
  if (!value.is_object())
    return Error{ErrorCode::Corrupt, "tokenizer.json: a post_processor must be an object"};
  if (depth > deepest_sequence) return too_deep();
  JsonFields fields(value.get_object(), "tokenizer.json: post_processor");
  const std::string type = fields.text("type", "");
  if (type == "TemplateProcessing") return parse_template(fields, out);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (Status status = push_pair(fields, "cls", out.prefix); !status) return status;
    return push_pair(fields, "sep", out.suffix);
  }
  if (type == "ByteLevel") return fields.status();
  if (type != "Sequence") {
    return Error{ErrorCode::Unsupported,
                 fmt::format("tokenizer.json: post_processor of type '{}' is not supported", type)};
  }
  const json::array* elements = fields.array("processors");
  if (!fields.status() || elements == nullptr) return fields.status();
  for (const json::value& element : *elements) {
    Affixes next;
    if (Status status = parse_processor(element, depth + 1, next); !status) return status;
    out.prefix.insert(out.prefix.begin(), next.prefix.begin(), next.prefix.end());
    out.suffix.insert(out.suffix.end(), next.suffix.begin(), next.suffix.end());
  }
  return {};
}

}  // namespace

Status parse_decoder(const json::value& value, TokenDecoder& decoder) {
  if (value.is_null()) {
    decoder.steps.emplace_back(DecodeJoined{});
    return {};
  }
  return DecoderParser(decoder).parse(value, 0);
}

Status parse_post_processor(const json::value& value, SpecialTokens& special) {
  Affixes affixes;
  if (Status status = parse_processor(value, 0, affixes); !status) return status;
  special.prefix = std::move(affixes.prefix);
  special.suffix = std::move(affixes.suffix);
  return {};
}

}  // namespace sluice::tokenizer
