// Arguments between tags, and arguments as words: {key:value}.
#include <algorithm>

#include "chat/formats/call_reader.h"

namespace sluice::chat {

namespace {

using Match = TextCursor::Match;

class TaggedArguments : public ArgumentReader {
 public:
  TaggedArguments(const ToolFormat& format, const ToolSet& tools, std::string tool)
      : format_(format), tools_(tools), tool_(std::move(tool)) {}

  ReadState read(TextCursor& cursor, std::string& out) override {
    while (true) {
      ReadState state = ReadState::Done;
      switch (step_) {
        case Step::KeyBegin: {
          const Match match = cursor.take(format_.key_begin);
          if (match == Match::NeedMore) return ReadState::NeedMore;
          if (match == Match::No) {
            out += is_first_ ? "{}" : "}";
            return ReadState::Done;
          }
          step_ = Step::Key;
          break;
        }
        case Step::Key:
          state = read_key(cursor, out);
          break;
        case Step::ValueBegin:
          if (cursor.take(format_.value_begin) == Match::NeedMore) return ReadState::NeedMore;
          step_ = format_.values_have_lines ? Step::ValueLine : Step::Value;
          break;
        case Step::ValueLine:
          if (cursor.at_end()) return ReadState::NeedMore;
          if (cursor.current() == '\n') cursor.advance();
          step_ = Step::Value;
          break;
        case Step::Value:
          state = read_value(cursor, out);
          break;
      }
      if (state != ReadState::Done) return state;
    }
  }

 private:
  enum class Step : uint8_t { KeyBegin, Key, ValueBegin, ValueLine, Value };

  ReadState read_key(TextCursor& cursor, std::string& out) {
    const std::string_view marks[] = {trimmed(format_.key_end), trimmed(format_.key_end_json)};
    const MarkSearch found = find_mark(cursor.rest(), marks, cursor.is_last());
    key_ += cursor.rest().substr(0, found.before);
    cursor.advance(found.before);
    if (!found.which) return ReadState::NeedMore;
    cursor.advance(marks[*found.which].size());
    key_ = trimmed(key_);
    types_ = tools_.types_of(tool_, key_);
    if (!format_.key_end_json.empty()) types_.assign(*found.which == 0 ? 1 : 0, "string");
    is_string_ = types_.size() == 1 && types_.front() == "string";
    out += is_first_ ? "{" : ", ";
    is_first_ = false;
    out += quote_json(key_) + ": ";
    if (is_string_) out += '"';
    key_.clear();
    step_ = Step::ValueBegin;
    return ReadState::Done;
  }

  ReadState read_value(TextCursor& cursor, std::string& out) {
    const std::string_view end = trimmed(format_.value_end);
    const MarkSearch found = find_mark(cursor.rest(), {&end, 1}, cursor.is_last());
    std::string_view text = cursor.rest().substr(0, found.before);
    const bool ends_line = format_.values_have_lines && text.ends_with('\n');
    if (ends_line) text.remove_suffix(1);  // of the tag, or text that waits for what follows
    if (is_string_) {
      append_json_escaped(text, out);
    } else {
      value_ += text;
    }
    cursor.advance(text.size());
    if (!found.which) return ReadState::NeedMore;
    cursor.advance((ends_line ? 1 : 0) + end.size());
    out += is_string_ ? std::string("\"") : value_of_types(value_, types_);
    value_.clear();
    step_ = Step::KeyBegin;
    return ReadState::Done;
  }

  const ToolFormat& format_;
  const ToolSet& tools_;
  std::string tool_, key_, value_;
  std::vector<std::string> types_;
  Step step_ = Step::KeyBegin;
  bool is_first_ = true, is_string_ = false;
};

class WordArguments : public ArgumentReader {
 public:
  explicit WordArguments(const ToolFormat& format) : quote_(format.quote) {}

  ReadState read(TextCursor& cursor, std::string& out) override {
    while (true) {
      if (in_string_) {
        if (!read_string(cursor, out)) return ReadState::NeedMore;
        continue;
      }
      if (cursor.at_end()) return ReadState::NeedMore;
      const Match quote = cursor.starts_with(quote_);
      if (quote == Match::NeedMore) return ReadState::NeedMore;
      if (quote == Match::Yes && !open_.empty()) {
        cursor.advance(quote_.size());
        out += '"';
        in_string_ = true;
        continue;
      }
      const char c = cursor.current();
      if (open_.empty() && c != '{' && !is_space(c)) {
        out += "{}";
        return ReadState::Done;
      }
      cursor.advance();
      if (take(c, out)) return ReadState::Done;
    }
  }

 private:
  bool read_string(TextCursor& cursor, std::string& out) {
    const MarkSearch found = find_mark(cursor.rest(), {&quote_, 1}, cursor.is_last());
    append_json_escaped(cursor.rest().substr(0, found.before), out);
    cursor.advance(found.before);
    if (!found.which) return false;
    cursor.advance(quote_.size());
    out += '"';
    in_string_ = false;
    return true;
  }

  // True: the arguments are complete.
  bool take(char c, std::string& out) {
    if (c == '{' || c == '[') {
      end_word(out);
      open_ += c;
      wants_key_ = c == '{';
      out += c;
    } else if (c == '}' || c == ']') {
      end_word(out);
      out += open_.back() == '{' ? '}' : ']';
      open_.pop_back();
      return open_.empty();
    } else if (c == ',') {
      end_word(out);
      out += ", ";
      wants_key_ = !open_.empty() && open_.back() == '{';
    } else if (c == ':' && wants_key_) {
      end_word(out);
      out += ": ";
      wants_key_ = false;
    } else if (!is_space(c) || !word_.empty()) {
      word_ += c;
    }
    return false;
  }

  void end_word(std::string& out) {
    const std::string_view word = trimmed(word_);
    if (!word.empty()) out += wants_key_ ? quote_json(word) : value_of_types(word, {});
    word_.clear();
  }

  std::string_view quote_;
  std::string open_, word_;
  bool in_string_ = false, wants_key_ = false;
};

std::string_view type_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "integer";
    case json::kind::double_:
      return "number";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      break;
  }
  return "object";
}

}  // namespace

std::string value_of_types(std::string_view text, const std::vector<std::string>& types) {
  const auto allows = [&](std::string_view name) {
    return types.empty() || std::find(types.begin(), types.end(), name) != types.end();
  };
  std::string_view bare = trimmed(text);
  if (bare == "True") bare = "true";
  if (bare == "False") bare = "false";
  if (bare == "None") bare = "null";
  const Result<json::value> parsed = parse_json(bare, "argument");
  if (parsed) {
    const std::string_view type = type_name(*parsed);
    if (allows(type) || (type == "integer" && allows("number"))) return std::string(bare);
  }
  return quote_json(text);
}

std::unique_ptr<ArgumentReader> make_tagged_arguments(const ToolFormat& format, const ToolSet& tools,
                                                      std::string tool) {
  return std::make_unique<TaggedArguments>(format, tools, std::move(tool));
}

std::unique_ptr<ArgumentReader> make_word_arguments(const ToolFormat& format) {
  return std::make_unique<WordArguments>(format);
}

}  // namespace sluice::chat
