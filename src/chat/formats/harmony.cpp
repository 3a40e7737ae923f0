// gpt-oss: an answer is a row of messages, each with a channel and perhaps a recipient in its header.
// <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.NAME
// <|constrain|>json<|message|>{...}<|call|>
#include <array>

#include "chat/formats/call_reader.h"
#include "chat/formats/output_parser.h"

namespace sluice::chat {

namespace {

using Match = TextCursor::Match;

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", kStart, kChannel};
constexpr std::array<std::string_view, 4> kHeaderStarts = {kStart, kChannel, "to=", "assistant"};

// The word behind a mark in a header.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  std::string_view rest = trimmed(header.substr(at + mark.size()));
  size_t end = 0;
  while (end < rest.size() && !is_space(rest[end]) && rest[end] != '<') ++end;
  return rest.substr(0, end);
}

class HarmonyParser : public OutputParser {
 public:
  HarmonyParser(bool has_tools, AnswerStart start)
      : has_tools_(has_tools),
        state_(start == AnswerStart::Content     ? State::Content
               : start == AnswerStart::Reasoning ? State::Reasoning
                                                 : State::HeaderStart) {}

  void push(std::string_view text, std::vector<OutputPiece>& out) override {
    buffer_ += text;
    run(false, out);
  }
  void finish(std::vector<OutputPiece>& out) override {
    run(true, out);
    end_body(out);
  }
  bool in_reasoning() const override { return state_ == State::Reasoning; }

 private:
  enum class State : uint8_t { HeaderStart, Header, Reasoning, Content, Call };

  void run(bool is_last, std::vector<OutputPiece>& out) {
    TextCursor cursor(buffer_, is_last);
    while (state_ == State::HeaderStart ? begin_header(cursor)
           : state_ == State::Header    ? read_header(cursor, out)
                                        : read_body(cursor, out)) {
    }
    buffer_.erase(0, cursor.position());
  }

  bool begin_header(TextCursor& cursor) {
    const size_t begin = cursor.position();
    cursor.skip_spaces();
    if (cursor.at_end() && !cursor.is_last()) {
      cursor.set_position(begin);
      return false;
    }
    bool waits = false;
    for (const std::string_view mark : kHeaderStarts) {
      const Match match = cursor.starts_with(mark);
      if (match == Match::Yes) {
        state_ = State::Header;
        header_.clear();
        return true;
      }
      waits = waits || match == Match::NeedMore;
    }
    cursor.set_position(begin);
    if (waits) return false;
    state_ = State::Content;  // a text without a header
    return true;
  }

  bool read_header(TextCursor& cursor, std::vector<OutputPiece>& out) {
    const MarkSearch found = find_mark(cursor.rest(), {&kMessage, 1}, cursor.is_last());
    header_ += cursor.rest().substr(0, found.before);
    cursor.advance(found.before);
    if (!found.which) return false;
    cursor.advance(kMessage.size());
    begin_body(out);
    return true;
  }

  void begin_body(std::vector<OutputPiece>& out) {
    const std::string_view channel = word_behind(header_, kChannel);
    std::string_view recipient = word_behind(header_, "to=");
    is_empty_ = true;
    spaces_.clear();
    if (!recipient.empty() && recipient != "assistant" && has_tools_) {
      constexpr std::string_view kPrefix = "functions.";
      if (recipient.starts_with(kPrefix)) recipient.remove_prefix(kPrefix.size());
      CallSink(out, calls_).begin(std::string(recipient));
      state_ = State::Call;
    } else {
      state_ = channel == "analysis" ? State::Reasoning : State::Content;
    }
  }

  bool read_body(TextCursor& cursor, std::vector<OutputPiece>& out) {
    if (cursor.at_end()) return false;
    const MarkSearch found = find_mark(cursor.rest(), kBodyEnds, cursor.is_last());
    add(cursor.rest().substr(0, found.before), out);
    cursor.advance(found.before);
    if (!found.which) return false;
    const std::string_view mark = kBodyEnds[*found.which];
    if (mark != kStart && mark != kChannel) cursor.advance(mark.size());
    end_body(out);
    state_ = State::HeaderStart;
    return true;
  }

  void add(std::string_view text, std::vector<OutputPiece>& out) {
    if (state_ == State::Content) return append_content(text, out);
    if (state_ == State::Reasoning) return append_reasoning(text, out);
    if (is_empty_)
      while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    if (text.empty()) return;
    is_empty_ = false;
    std::string all = spaces_ + std::string(text);
    size_t end = all.size();
    while (end > 0 && is_space(all[end - 1])) --end;
    spaces_ = all.substr(end);
    all.resize(end);
    CallSink(out, calls_).add_arguments(std::move(all));
  }

  void end_body(std::vector<OutputPiece>& out) {
    if (state_ == State::Call && is_empty_) CallSink(out, calls_).add_arguments("{}");
    is_empty_ = false;
    spaces_.clear();
  }

  bool has_tools_;
  State state_;
  std::string buffer_, header_;
  std::string spaces_;    // at the end of arguments so far
  bool is_empty_ = true;  // no arguments yet
  int calls_ = 0;
};

}  // namespace

std::unique_ptr<OutputParser> make_harmony_parser(bool has_tools, AnswerStart start) {
  return std::make_unique<HarmonyParser>(has_tools, start);
}

}  // namespace sluice::chat
