#include "api/fields/compress_fields.h"

#include <fmt/format.h>

#include <limits>

#include "api/core/errors.h"

namespace sluice::api {

namespace {

constexpr size_t kMostSpans = 256;
constexpr int kMostKept = 1 << 24;

CompressDraft& compress_draft(ParsedRequest& parsed) {
  if (!parsed.compress) parsed.compress.emplace();
  return *parsed.compress;
}

Status read_compress_mode(const json::value& value, ParsedRequest& parsed) {
  std::vector<std::string_view> names;
  for (const compress::ModeName& row : compress::kModes) {
    names.push_back(row.name);
    if (value.get_string() != row.name) continue;
    compress_draft(parsed).options.mode = row.mode;
    return {};
  }
  return wrong(
      fmt::format("'compress.mode' is {}; it must be one of {}", shown(value), fmt::join(names, ", ")));
}

Status read_ratio(const json::value& value, ParsedRequest& parsed) {
  if (to_double(value) <= 0)
    return wrong(fmt::format("'compress.ratio' is {}; it must be above 0 and at most 1", shown(value)));
  compress_draft(parsed).options.ratio = to_double(value);
  return {};
}
Status read_kept_tokens(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).options.max_tokens = to_int(value);
  return {};
}
Status read_min_keep(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).options.min_keep = to_int(value);
  return {};
}
Status read_question(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).options.question = to_text(value);
  return {};
}
Status read_system(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).system = value.get_bool();
  return {};
}
Status read_return_text(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).return_text = value.get_bool();
  return {};
}
Status read_extract_schema(const json::value& value, ParsedRequest& parsed) {
  compress_draft(parsed).options.schema = write_json(value);
  return {};
}

Result<int64_t> read_offset(const json::object& span, const std::string& where, std::string_view name) {
  const json::value* value = span.if_contains(name);
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0)
    return wrong(fmt::format("'{}.{}' is {}; it must be an integer of at least 0", where, name,
                             value == nullptr ? "missing" : shown(*value)));
  return value->get_int64();
}

Result<KeepSpan> read_span(const json::value& value, const std::string& where) {
  if (const json::string* text = value.if_string()) {
    if (text->empty()) return wrong(fmt::format("'{}' is empty", where));
    return KeepSpan{.text = std::string(*text)};
  }
  const json::object* object = value.if_object();
  if (object == nullptr)
    return wrong(
        fmt::format("'{}' is {}; it must be a string or an object with begin and end", where, shown(value)));
  KeepSpan span;
  const Result<int64_t> begin = read_offset(*object, where, "begin"),
                        end = read_offset(*object, where, "end");
  if (!begin) return begin.error();
  if (!end) return end.error();
  if (*end <= *begin)
    return wrong(fmt::format("'{}' begins at {} and ends at {}; it must end behind its beginning", where,
                             *begin, *end));
  span.begin = *begin;
  span.end = *end;
  if (!object->contains("message")) return span;
  const Result<int64_t> message = read_offset(*object, where, "message");
  if (!message) return message.error();
  span.message = *message;
  return span;
}

Status read_keep(const json::value& value, ParsedRequest& parsed) {
  const json::array& list = value.get_array();
  if (list.size() > kMostSpans)
    return wrong(fmt::format("'compress.keep' has {} entries; the limit is {}", list.size(), kMostSpans));
  for (size_t i = 0; i < list.size(); ++i) {
    Result<KeepSpan> span = read_span(list[i], fmt::format("compress.keep[{}]", i));
    if (!span) return span.error();
    compress_draft(parsed).keep.push_back(std::move(*span));
  }
  return {};
}

// Behind its members.
Status read_compress(const json::value&, ParsedRequest& parsed) {
  const compress::Options& options = compress_draft(parsed).options;
  if (options.ratio && options.max_tokens)
    return wrong("'compress.ratio' and 'compress.max_tokens' must not both be given");
  const bool extracts = options.mode == compress::Mode::Extract;
  if (extracts && options.schema.empty())
    return wrong("'compress.schema' is missing; mode \"extract\" needs it");
  if (!extracts && !options.schema.empty())
    return wrong(fmt::format("'compress.schema' is given with mode \"{}\"; it is read with \"extract\" alone",
                             compress::name(options.mode)));
  return {};
}

constexpr Field kCompressMembers[] = {
    used(
        "mode", {Kind::Text},
        "\"tokens\": sentences and words that say least go; \"prefill\": chunks that a look-ahead attends to "
        "least are not run; \"summary\": the model summarises; \"extract\": the model fills the schema",
        read_compress_mode)
        .by_default("tokens"),
    used("ratio", number(0, 1), "share of the texts' tokens that stays", read_ratio)
        .by_default("0.5 without max_tokens"),
    used("max_tokens", integer(1, kMostKept), "tokens that stay, instead of a share", read_kept_tokens),
    used("min_keep", integer(0, kMostKept), "texts are not made shorter than this many tokens", read_min_keep)
        .by_default("64"),
    used("keep", {Kind::List},
         "what stays byte by byte: strings, or {begin, end, message} in characters of a message, the last "
         "where none is named",
         read_keep),
    used("question", {Kind::Text}, "what the texts are read for", read_question)
        .by_default("what the last text ends with"),
    used("system", {Kind::Boolean}, "system messages are made shorter, too", read_system),
    used("schema", {Kind::Object}, "of mode \"extract\": the JSON schema of the facts", read_extract_schema),
    used("return_text", {Kind::Boolean}, "the usage holds the shorter texts", read_return_text),
};

constexpr Field make_compress_field() {
  Field field =
      nested("compress", "make the request's texts shorter before the model reads them", kCompressMembers);
  field.read = read_compress;
  return field;
}
constexpr Field kCompressField[] = {make_compress_field()};

}  // namespace

std::span<const Field> compress_field() {
  return kCompressField;
}

}  // namespace sluice::api
