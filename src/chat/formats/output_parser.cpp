#include "chat/formats/output_parser.h"

#include <optional>

#include "chat/formats/call_reader.h"

namespace sluice::chat {

namespace {

using Match = TextCursor::Match;

template <class Piece>
void append_text(std::string_view text, std::vector<OutputPiece>& out) {
  if (text.empty()) return;
  if (!out.empty()) {
    if (auto* last = std::get_if<Piece>(&out.back())) {
      last->text += text;
      return;
    }
  }
  out.emplace_back(Piece{std::string(text)});
}

// Formats whose parts stand between marks.
class MarkedParser : public OutputParser {
 public:
  MarkedParser(std::shared_ptr<const OutputFormat> format, std::shared_ptr<const ToolSet> tools,
               AnswerStart start)
      : format_(std::move(format)), tools_(std::move(tools)) {
    if (format_->tools && !tools_->empty()) calls_format_ = &*format_->tools;
    state_ = start == AnswerStart::Content                           ? State::Content
             : start == AnswerStart::Reasoning && format_->reasoning ? State::Reasoning
                                                                     : State::Start;
    drops_spaces_ = state_ == State::Reasoning;
    if (calls_format_ == nullptr) return;
    for (const std::string* mark : {&calls_format_->section_begin, &calls_format_->call_begin})
      if (!mark->empty()) marks_.push_back(trimmed(*mark));
    begin_marks_ = marks_.size();
    if (!calls_format_->section_end.empty()) marks_.push_back(trimmed(calls_format_->section_end));
  }

  void push(std::string_view text, std::vector<OutputPiece>& out) override {
    buffer_ += text;
    run(false, out);
  }

  void finish(std::vector<OutputPiece>& out) override {
    run(true, out);
    if (state_ != State::Reasoning && !drops_spaces_) append_content(spaces_, out);
  }

  bool in_reasoning() const override { return state_ == State::Reasoning; }

 private:
  enum class State : uint8_t { Start, Reasoning, Answer, Content, Section, Call, CallEnd };

  void run(bool is_last, std::vector<OutputPiece>& out) {
    TextCursor cursor(buffer_, is_last);
    while (step(cursor, out)) {
    }
    if (is_last) give_up(cursor, out);
    buffer_.erase(0, cursor.position());
  }

  // False: more is needed.
  bool step(TextCursor& cursor, std::vector<OutputPiece>& out) {
    switch (state_) {
      case State::Start:
        return start(cursor);
      case State::Reasoning:
        return reason(cursor, out);
      case State::Answer:
        return answer(cursor);
      case State::Content:
        return content(cursor, out);
      case State::Section:
        return section(cursor, out);
      case State::Call:
        return call(cursor, out);
      case State::CallEnd:
        break;
    }
    return end_call(cursor);
  }

  bool start(TextCursor& cursor) {
    const Match match = format_->reasoning ? cursor.take(format_->reasoning->begin) : Match::No;
    if (match == Match::NeedMore) return false;
    state_ = match == Match::Yes ? State::Reasoning : State::Answer;
    drops_spaces_ = match == Match::Yes;
    return true;
  }

  bool reason(TextCursor& cursor, std::vector<OutputPiece>& out) {
    const std::string_view end = trimmed(format_->reasoning->end);
    const MarkSearch found = find_mark(cursor.rest(), {&end, 1}, cursor.is_last());
    append_reasoning(hold_spaces(cursor.rest().substr(0, found.before)), out);
    cursor.advance(found.before);
    if (!found.which) return false;
    cursor.advance(end.size());
    spaces_.clear();
    drops_spaces_ = true;
    state_ = State::Answer;
    return true;
  }

  // The answer proper begins: a call without marks can stand here alone.
  bool answer(TextCursor& cursor) {
    state_ = State::Content;
    if (calls_format_ == nullptr || !calls_format_->is_bare()) return true;
    const size_t begin = cursor.position();
    const Match mark = calls_format_->bare_begin.empty() ? Match::No : cursor.take(calls_format_->bare_begin);
    const std::optional<char> first = cursor.peek_behind_spaces();
    if (mark == Match::NeedMore || (!first && !cursor.is_last())) {
      cursor.set_position(begin);
      state_ = State::Answer;
      return false;
    }
    const char opening = calls_format_->syntax == CallSyntax::Python ? '[' : '{';
    if (first != opening) {
      cursor.set_position(begin);
      return true;
    }
    raw_ = cursor.from(begin);
    begin_call();
    return true;
  }

  // The text without the spaces at its end, which wait, and behind those that waited.
  std::string hold_spaces(std::string_view text) {
    std::string held = std::move(spaces_);
    spaces_.clear();
    if (drops_spaces_) {
      held.clear();
      while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    }
    size_t end = text.size();
    while (end > 0 && is_space(text[end - 1])) --end;
    if (end == 0) {
      spaces_ = held + std::string(text);
      return {};
    }
    drops_spaces_ = false;
    spaces_ = text.substr(end);
    return held + std::string(text.substr(0, end));
  }

  bool content(TextCursor& cursor, std::vector<OutputPiece>& out) {
    if (cursor.at_end()) return false;
    const MarkSearch found = find_mark(cursor.rest(), marks_, cursor.is_last());
    append_content(hold_spaces(cursor.rest().substr(0, found.before)), out);
    cursor.advance(found.before);
    if (!found.which) return false;
    const std::string_view mark = marks_[*found.which];
    cursor.advance(mark.size());
    if (*found.which >= begin_marks_) {  // the end of a section that was left
      drops_spaces_ = true;
      spaces_.clear();
      return true;
    }
    raw_ = spaces_ + std::string(mark);
    spaces_.clear();
    if (!calls_format_->section_begin.empty() && *found.which == 0) {
      state_ = State::Section;
    } else {
      begin_call();
    }
    return true;
  }

  void begin_call() {
    reader_ = make_call_reader(*calls_format_, *tools_);
    state_ = State::Call;
  }

  bool section(TextCursor& cursor, std::vector<OutputPiece>& out) {
    const Match begin = cursor.take(calls_format_->call_begin);
    if (begin == Match::Yes) {
      begin_call();
      return true;
    }
    if (begin == Match::NeedMore) return false;
    const Match end = cursor.take(calls_format_->section_end);
    if (end == Match::NeedMore) return false;
    if (end == Match::No) return_raw(out);
    leave_calls();
    return true;
  }

  void leave_calls() {
    raw_.clear();
    state_ = State::Content;
    drops_spaces_ = true;
  }

  // What looked like a call is text after all.
  void return_raw(std::vector<OutputPiece>& out) {
    if (!raw_.empty()) {
      append_content(drops_spaces_ ? trimmed(raw_) : std::string_view(raw_), out);
      drops_spaces_ = false;
    }
    raw_.clear();
  }

  bool call(TextCursor& cursor, std::vector<OutputPiece>& out) {
    const size_t begin = cursor.position();
    const int before = calls_;
    CallSink sink(out, calls_);
    const ReadState state = reader_->read(cursor, sink);
    if (calls_ > before) {
      raw_.clear();
      committed_ = true;
    } else if (!committed_) {
      raw_ += cursor.from(begin);
    }
    if (state == ReadState::NeedMore) return false;
    if (state == ReadState::Failed) {
      return_raw(out);
      state_ = State::Content;
    } else {
      state_ = State::CallEnd;
    }
    committed_ = false;
    reader_.reset();
    return true;
  }

  // Brackets that a model closed once too often are skipped.
  bool end_call(TextCursor& cursor) {
    while (!calls_format_->call_end.empty()) {
      const Match match = cursor.take(calls_format_->call_end);
      if (match == Match::NeedMore) return false;
      if (match == Match::Yes) break;
      const std::optional<char> c = cursor.peek_behind_spaces();
      if (!c || std::string_view("}])\"'`").find(*c) == std::string_view::npos) break;
      cursor.advance();
    }
    if (calls_format_->section_begin.empty()) {
      leave_calls();
    } else {
      state_ = State::Section;
    }
    return true;
  }

  // The text has ended in the middle of something.
  void give_up(TextCursor& cursor, std::vector<OutputPiece>& out) {
    if (state_ == State::Call || state_ == State::Section) {
      if (!committed_ && state_ == State::Call) raw_ += cursor.rest();
      if (!committed_) return_raw(out);
      cursor.advance(cursor.rest().size());
    }
  }

  std::shared_ptr<const OutputFormat> format_;
  std::shared_ptr<const ToolSet> tools_;
  const ToolFormat* calls_format_ = nullptr;  // null: calls are not looked for
  std::vector<std::string_view> marks_;       // in content; those from begin_marks_ on are dropped
  size_t begin_marks_ = 0;
  State state_;
  std::string buffer_;  // not taken yet
  std::string spaces_;  // taken, but dropped where a mark follows
  bool drops_spaces_;   // those at the start
  std::string raw_;     // of a call of which nothing was given out yet
  std::unique_ptr<CallReader> reader_;
  bool committed_ = false;  // the reader has given out a call
  int calls_ = 0;
};

}  // namespace

void append_content(std::string_view text, std::vector<OutputPiece>& out) {
  append_text<ContentPiece>(text, out);
}
void append_reasoning(std::string_view text, std::vector<OutputPiece>& out) {
  append_text<ReasoningPiece>(text, out);
}

std::unique_ptr<OutputParser> make_output_parser(std::shared_ptr<const OutputFormat> format,
                                                 std::shared_ptr<const ToolSet> tools, AnswerStart start) {
  if (format->tools && format->tools->syntax == CallSyntax::Harmony)
    return make_harmony_parser(!tools->empty(), start);
  return std::make_unique<MarkedParser>(std::move(format), std::move(tools), start);
}

ParsedOutput parse_output(const OutputFormat& format, const ToolSet& tools, AnswerStart start,
                          std::string_view text) {
  const std::unique_ptr<OutputParser> parser =
      make_output_parser(std::make_shared<OutputFormat>(format), std::make_shared<ToolSet>(tools), start);
  std::vector<OutputPiece> pieces;
  parser->push(text, pieces);
  parser->finish(pieces);
  ParsedOutput whole;
  for (const OutputPiece& piece : pieces) whole.add(piece);
  return whole;
}

}  // namespace sluice::chat
