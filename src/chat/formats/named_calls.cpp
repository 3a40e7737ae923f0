// Calls that start with a name: NAME and a JSON object, NAME and tagged arguments, NAME{key:value}.
#include "base/check.h"
#include "chat/formats/call_reader.h"

namespace sluice::chat {

namespace {

using Match = TextCursor::Match;

bool ends_name(char c) {
  return is_space(c) || std::string_view("<>[]{}()\"'`=,").find(c) != std::string_view::npos;
}

class NamedReader : public CallReader {
 public:
  NamedReader(const ToolFormat& format, const ToolSet& tools) : format_(format), tools_(tools) {}

  ReadState read(TextCursor& cursor, CallSink& sink) override {
    while (step_ != Step::Done) {
      const ReadState state = step_ == Step::Arguments ? read_arguments(cursor, sink)
                              : is_text_step()         ? read_word(cursor)
                                                       : take_mark(cursor, sink);
      if (state != ReadState::Done) return state;
    }
    return ReadState::Done;
  }

 private:
  enum class Step : uint8_t { NameBegin, Name, IdBegin, Id, NameEnd, Arguments, ArgumentsEnd, Done };

  bool is_text_step() const { return step_ == Step::Name || step_ == Step::Id; }

  // Done: go on with the next step.
  ReadState take_mark(TextCursor& cursor, CallSink& sink) {
    const Match match = cursor.take(step_ == Step::NameBegin ? format_.name_begin
                                    : step_ == Step::IdBegin ? format_.id_begin
                                    : step_ == Step::NameEnd ? format_.name_end
                                                             : format_.arguments_end);
    if (match == Match::NeedMore) return ReadState::NeedMore;
    switch (step_) {
      case Step::NameBegin:
        if (match == Match::No) return ReadState::Failed;
        step_ = Step::Name;
        break;
      case Step::IdBegin:
        step_ = match == Match::Yes && !format_.id_begin.empty() ? Step::Id : Step::NameEnd;
        break;
      case Step::NameEnd:
        if (match == Match::No) return ReadState::Failed;
        begin_call(sink);
        step_ = Step::Arguments;
        break;
      default:  // what ends the arguments may be missing
        step_ = Step::Done;
    }
    return ReadState::Done;
  }

  ReadState read_word(TextCursor& cursor) {
    std::string& word = step_ == Step::Name ? name_ : id_;
    if (word.empty() && !cursor.peek_behind_spaces()) return ReadState::NeedMore;
    while (!cursor.at_end() && !ends_name(cursor.current())) {
      word += cursor.current();
      cursor.advance();
    }
    if (cursor.at_end() && !cursor.is_last()) return ReadState::NeedMore;
    if (word.empty()) return ReadState::Failed;
    step_ = step_ == Step::Name ? Step::IdBegin : Step::NameEnd;
    return ReadState::Done;
  }

  void begin_call(CallSink& sink) {
    if (format_.id_in_name) {
      id_ = name_;
      constexpr std::string_view kPrefix = "functions.";
      if (name_.starts_with(kPrefix)) name_.erase(0, kPrefix.size());
      const size_t colon = name_.rfind(':');
      if (colon != std::string::npos && colon > 0) name_.resize(colon);
    }
    switch (format_.syntax) {
      case CallSyntax::NameJson:
        arguments_ = make_json_arguments();
        break;
      case CallSyntax::NameTagged:
        arguments_ = make_tagged_arguments(format_, tools_, name_);
        break;
      default:
        arguments_ = make_word_arguments(format_);
    }
    sink.begin(name_, id_);
  }

  ReadState read_arguments(TextCursor& cursor, CallSink& sink) {
    std::string text;
    const ReadState state = arguments_->read(cursor, text);
    sink.add_arguments(std::move(text));
    if (state == ReadState::Done) step_ = Step::ArgumentsEnd;
    return state;
  }

  const ToolFormat& format_;
  const ToolSet& tools_;
  Step step_ = Step::NameBegin;
  std::string name_, id_;
  std::unique_ptr<ArgumentReader> arguments_;
};

// As the model wrote it.
class JsonArguments : public ArgumentReader {
 public:
  ReadState read(TextCursor& cursor, std::string& out) override {
    if (!begun_) {
      const std::optional<char> first = cursor.peek_behind_spaces();
      if (!first) return ReadState::NeedMore;
      if (*first != '{') {
        out += "{}";
        return ReadState::Done;
      }
      begun_ = true;
    }
    while (!cursor.at_end()) {
      const char c = cursor.current();
      cursor.advance();
      out += c;
      if (scan_.feed(c) == JsonScan::Step::Last) return ReadState::Done;
    }
    return ReadState::NeedMore;
  }

 private:
  bool begun_ = false;
  JsonScan scan_;
};

}  // namespace

std::unique_ptr<CallReader> make_named_reader(const ToolFormat& format, const ToolSet& tools) {
  return std::make_unique<NamedReader>(format, tools);
}

std::unique_ptr<ArgumentReader> make_json_arguments() {
  return std::make_unique<JsonArguments>();
}

}  // namespace sluice::chat
