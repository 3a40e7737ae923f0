#include "chat/formats/derived_format.h"

#include <algorithm>
#include <string>

#include "base/json.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

namespace {

constexpr size_t kNone = std::string_view::npos;

size_t shared_end(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<size_t>(ends.first - a.rbegin());
}

// Behind the JSON value that begins there; none where it does not end.
size_t json_end(std::string_view text, size_t begin) {
  JsonScan scan;
  for (size_t at = begin; at < text.size(); ++at)
    if (scan.feed(text[at]) == JsonScan::Step::Last) return at + 1;
  return kNone;
}

// The parts of a text around two calls.
struct Places {
  std::string_view before, between;
};

// What ends a call and what begins the next one stand together between two: what begins one stands before the first, too.
bool set_marks(const Places& places, ToolFormat& format) {
  const size_t begin = shared_end(places.before, places.between);
  format.call_begin = places.between.substr(places.between.size() - begin);
  format.call_end = places.between.substr(0, places.between.size() - begin);
  return !trimmed(format.call_begin).empty();
}

std::optional<ToolFormat> json_objects(std::string_view turn, const KnownCalls& known) {
  std::array<size_t, 2> begin{}, end{};
  ToolFormat format{.name = "derived", .syntax = CallSyntax::JsonObject};
  for (size_t i = 0; i < 2; ++i) {
    begin[i] = turn.rfind('{', turn.find(known.names[i]));
    end[i] = begin[i] == kNone ? kNone : json_end(turn, begin[i]);
    if (end[i] == kNone) return std::nullopt;
    const Result<json::value> call = parse_json(turn.substr(begin[i], end[i] - begin[i]), "call");
    if (!call || !call->is_object()) return std::nullopt;
    for (const auto& [key, value] : call->get_object()) {
      if (value.is_object()) format.arguments_key = key;
      if (value.is_string() && value.get_string() == known.names[i]) format.name_key = key;
    }
  }
  if (format.name_key.empty() || format.arguments_key.empty()) return std::nullopt;
  const Places places{turn.substr(0, begin[0]), turn.substr(end[0], begin[1] - end[0])};
  if (!set_marks(places, format)) return std::nullopt;
  return format;
}

std::optional<ToolFormat> named_json(std::string_view turn, const KnownCalls& known) {
  const size_t first = turn.find(known.names[0]), second = turn.find(known.names[1]);
  const size_t name_end = first + known.names[0].size();
  const size_t arguments = turn.find('{', name_end);
  if (arguments == kNone || arguments > second) return std::nullopt;
  const size_t end = json_end(turn, arguments);
  if (end == kNone || end > second) return std::nullopt;
  ToolFormat format{.name = "derived", .syntax = CallSyntax::NameJson};
  format.name_end = turn.substr(name_end, arguments - name_end);
  if (!set_marks({turn.substr(0, first), turn.substr(end, second - end)}, format)) return std::nullopt;
  return format;
}

// Name, key, value, key, value, name: the texts between them.
std::optional<ToolFormat> named_tags(std::string_view turn, const KnownCalls& known) {
  const std::array<std::string_view, 6> words = {known.names[0], known.keys[0],   known.values[0],
                                                 known.keys[1],  known.values[1], known.names[1]};
  std::array<std::string_view, 5> gaps;
  size_t at = turn.find(words[0]);
  const std::string_view before = turn.substr(0, at);
  for (size_t i = 0; i < gaps.size(); ++i) {
    const size_t begin = at + words[i].size();
    at = turn.find(words[i + 1], begin);
    if (at == kNone) return std::nullopt;
    gaps[i] = turn.substr(begin, at - begin);
  }
  ToolFormat format{.name = "derived", .syntax = CallSyntax::NameTagged};
  size_t key = shared_end(gaps[0], gaps[2]);
  // A tag that both begin with belongs to what stands before it: the end of the name's, and that of a value.
  if (const size_t tag = gaps[0].substr(gaps[0].size() - key).find('<'); tag != kNone) key -= tag;
  format.name_end = gaps[0].substr(0, gaps[0].size() - key);
  format.key_begin = gaps[0].substr(gaps[0].size() - key);
  format.key_end = gaps[1];
  format.value_end = gaps[2].substr(0, gaps[2].size() - key);
  format.values_have_lines = format.key_end.ends_with('\n') && format.value_end.starts_with('\n');
  const bool has_tags = !trimmed(format.key_begin).empty() && !trimmed(format.key_end).empty() &&
                        !trimmed(format.value_end).empty();
  if (!has_tags || gaps[1] != gaps[3] || !gaps[4].starts_with(format.value_end)) return std::nullopt;
  if (!set_marks({before, gaps[4].substr(format.value_end.size())}, format)) return std::nullopt;
  return format;
}

}  // namespace

std::optional<ToolFormat> derive_from_turn(std::string_view turn, const KnownCalls& known) {
  const size_t first = turn.find(known.names[0]), second = turn.find(known.names[1]);
  if (first == kNone || second == kNone || second < first) return std::nullopt;
  if (std::optional<ToolFormat> format = json_objects(turn, known)) return format;
  if (std::optional<ToolFormat> format = named_json(turn, known)) return format;
  return named_tags(turn, known);
}

}  // namespace sluice::chat
