// {"name": ..., "arguments": {...}}, alone or in a list, and lists of {NAME: {...}}.
#include <optional>
#include <utility>

#include "chat/formats/call_reader.h"

namespace sluice::chat {

namespace {

class JsonReader : public CallReader {
 public:
  JsonReader(const ToolFormat& format, const ToolSet& tools) : format_(format), tools_(tools) {}

  ReadState read(TextCursor& cursor, CallSink& sink) override {
    while (true) {
      if (step_ == Step::Value) {
        if (cursor.at_end()) return ReadState::NeedMore;
        if (!read_value(cursor, sink)) continue;
      } else if (step_ == Step::Key) {
        if (!read_key(cursor)) return ReadState::NeedMore;
        continue;
      }
      if (step_ == Step::Failed) return any_ ? ReadState::Done : ReadState::Failed;
      if (step_ == Step::Done) return ReadState::Done;
      const std::optional<char> c = cursor.peek_behind_spaces();
      if (!c) return ReadState::NeedMore;
      if (take_structure(*c, sink)) cursor.advance();
    }
  }

 private:
  enum class Step : uint8_t { Open, Item, KeyOrEnd, Key, Colon, BeforeValue, Value, Done, Failed };
  enum class Role : uint8_t { Name, Arguments, Id, Other };

  bool is_list() const { return format_.syntax != CallSyntax::JsonObject; }

  // A character between names and values; false: it is not taken.
  bool take_structure(char c, CallSink& sink) {
    switch (step_) {
      case Step::Open:
        step_ = c == '[' && is_list() ? Step::Item : c == '{' ? Step::KeyOrEnd : Step::Failed;
        in_list_ = step_ == Step::Item;
        return step_ != Step::Failed;
      case Step::Item:
        if (c == ',') return true;
        step_ = c == '{' ? Step::KeyOrEnd : c == ']' ? Step::Done : Step::Failed;
        return step_ != Step::Failed;
      case Step::KeyOrEnd:
        if (c == ',') return true;
        if (c == '"') {
          step_ = Step::Key;
          text_.clear();
          return false;
        }
        if (c == '}') return end_object(sink);
        step_ = Step::Failed;
        return false;
      case Step::Colon:
        step_ = c == ':' ? Step::BeforeValue : Step::Failed;
        return c == ':';
      case Step::BeforeValue:
        return begin_value(c, sink);
      default:
        return false;
    }
  }

  // A string with its quotes; false: more is needed.
  bool read_key(TextCursor& cursor) {
    while (!cursor.at_end()) {
      const char c = cursor.current();
      cursor.advance();
      text_ += c;
      if (scan_.feed(c) != JsonScan::Step::Last) continue;
      scan_.reset();
      key_ = unquote_json(text_);
      step_ = Step::Colon;
      return true;
    }
    return false;
  }

  Role role() const {
    if (format_.syntax == CallSyntax::JsonKeyed) return Role::Arguments;
    if (key_ == "name" || key_ == format_.name_key) return Role::Name;
    if (key_ == "arguments" || key_ == "parameters" || key_ == format_.arguments_key) return Role::Arguments;
    return key_ == "id" || key_ == "tool_call_id" ? Role::Id : Role::Other;
  }

  bool begin_value(char c, CallSink& sink) {
    text_.clear();
    if (key_ == "function" && c == '{' && format_.syntax != CallSyntax::JsonKeyed) {
      ++nested_;
      step_ = Step::KeyOrEnd;
      return true;
    }
    if (format_.syntax == CallSyntax::JsonKeyed && !set_name(key_, sink)) return false;
    is_quoted_ = c == '"';
    is_object_ = c == '{';
    step_ = Step::Value;
    return false;
  }

  bool set_name(std::string name, CallSink& sink) {
    if (name.empty() || (format_.is_bare() && !tools_.contains(name))) {
      step_ = Step::Failed;
      return false;
    }
    any_ = has_name_ = true;
    sink.begin(std::move(name), id_);
    sink.add_arguments(std::exchange(arguments_, {}));
    return true;
  }

  // Arguments go on to the sink as they come, once the name is known. True: the value is complete.
  bool read_value(TextCursor& cursor, CallSink& sink) {
    const bool streams = role() == Role::Arguments && has_name_ && is_object_ && !had_arguments_;
    std::string passed;
    bool complete = false;
    while (!complete && !cursor.at_end()) {
      const char c = cursor.current();
      const JsonScan::Step step = scan_.feed(c);
      complete = step != JsonScan::Step::Inside;
      if (step == JsonScan::Step::Behind) break;
      cursor.advance();
      (streams ? passed : text_) += c;
    }
    sink.add_arguments(std::move(passed));
    if (!complete) return false;
    scan_.reset();
    end_value(streams, sink);
    return true;
  }

  void end_value(bool was_streamed, CallSink& sink) {
    step_ = Step::KeyOrEnd;
    switch (role()) {
      case Role::Name:
        if (!has_name_) set_name(is_quoted_ ? unquote_json(text_) : std::string(), sink);
        break;
      case Role::Arguments: {
        if (had_arguments_) break;
        had_arguments_ = true;
        std::string value = is_quoted_ ? unquote_json(text_) : text_ == "null" ? "{}" : text_;
        if (was_streamed) value.clear();
        if (has_name_) {
          sink.add_arguments(std::move(value));
        } else {
          arguments_ = std::move(value);
        }
        if (format_.syntax == CallSyntax::JsonKeyed) end_call(sink);
        break;
      }
      case Role::Id:
        id_ = is_quoted_ ? unquote_json(text_) : text_;
        break;
      case Role::Other:
        break;
    }
  }

  bool end_object(CallSink& sink) {
    if (nested_ > 0) {
      --nested_;
      return true;
    }
    if (!has_name_ && format_.syntax != CallSyntax::JsonKeyed) {
      step_ = Step::Failed;
      return false;
    }
    end_call(sink);
    step_ = in_list_ ? Step::Item : Step::Done;
    return true;
  }

  void end_call(CallSink& sink) {
    if (has_name_ && !had_arguments_) sink.add_arguments("{}");
    has_name_ = had_arguments_ = false;
    id_.clear();
    arguments_.clear();
  }

  const ToolFormat& format_;
  const ToolSet& tools_;
  Step step_ = Step::Open;
  JsonScan scan_;
  std::string text_, key_, id_, arguments_;
  int nested_ = 0;
  bool in_list_ = false, is_quoted_ = false, is_object_ = false;
  bool has_name_ = false, had_arguments_ = false;  // of this call
  bool any_ = false;                               // call so far
};

}  // namespace

std::unique_ptr<CallReader> make_json_reader(const ToolFormat& format, const ToolSet& tools) {
  return std::make_unique<JsonReader>(format, tools);
}

}  // namespace sluice::chat
