// [NAME(key=value, ...), ...]: calls as Python writes them, with literals as arguments.
#include <charconv>
#include <optional>

#include "chat/formats/call_reader.h"
#include "unicode/unicode.h"

namespace sluice::chat {

namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-';
}

// A literal to JSON.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  std::optional<std::string> convert() {
    std::string out;
    if (!value(out, 0)) return std::nullopt;
    skip();
    if (at_ < text_.size()) return std::nullopt;
    return out;
  }

 private:
  static constexpr int kDepth = 32;

  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool value(std::string& out, int depth) {
    skip();
    if (at_ >= text_.size() || depth > kDepth) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return string(out);
    if (c == '[' || c == '(') return items(c == '[' ? ']' : ')', out, depth);
    if (c == '{') return dictionary(out, depth);
    return word(out);
  }

  bool word(std::string& out) {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '+')) ++at_;
    const std::string made = value_of_types(text_.substr(begin, at_ - begin), {});
    if (at_ == begin || made.starts_with('"')) return false;
    out += made;
    return true;
  }

  bool string(std::string& out) {
    const char quote = text_[at_++];
    std::string content;
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_++];
      if (c != '\\' || at_ >= text_.size()) {
        content += c;
        continue;
      }
      const char escaped = text_[at_++];
      if (escaped == 'u' || escaped == 'x') {
        if (!code_point(escaped == 'u' ? 4 : 2, content)) return false;
      } else {
        content += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
      }
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    out += quote_json(content);
    return true;
  }

  bool code_point(size_t digits, std::string& out) {
    const std::string_view text = text_.substr(at_).substr(0, digits);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + digits) return false;
    at_ += digits;
    constexpr uint32_t kSurrogates = 0xD800, kBehindSurrogates = 0xE000, kReplacement = 0xFFFD;
    if (value >= kSurrogates && value < kBehindSurrogates) value = kReplacement;
    unicode::append_utf8(out, static_cast<char32_t>(value));
    return true;
  }

  bool items(char end, std::string& out, int depth) {
    ++at_;
    out += '[';
    for (bool is_first = true; !take(end); is_first = false) {
      if (!is_first) {
        if (!take(',')) return false;
        if (take(end)) break;
        out += ", ";
      }
      if (!value(out, depth + 1)) return false;
    }
    out += ']';
    return true;
  }

  bool dictionary(std::string& out, int depth) {
    ++at_;
    out += '{';
    for (bool is_first = true; !take('}'); is_first = false) {
      if (!is_first) {
        if (!take(',')) return false;
        if (take('}')) break;
        out += ", ";
      }
      skip();
      if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'') || !string(out)) return false;
      if (!take(':')) return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
    }
    out += '}';
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class PythonReader : public CallReader {
 public:
  PythonReader(const ToolFormat& format, const ToolSet& tools) : format_(format), tools_(tools) {}

  ReadState read(TextCursor& cursor, CallSink& sink) override {
    while (true) {
      if (step_ == Step::Done) return ReadState::Done;
      if (step_ == Step::Failed) return any_ ? ReadState::Done : ReadState::Failed;
      if (cursor.at_end()) return ReadState::NeedMore;
      const char c = cursor.current();
      const bool taken = step_ == Step::Name       ? take_name(c, sink)
                         : step_ == Step::Argument ? take_argument(c, sink)
                                                   : take_structure(c);
      if (taken) cursor.advance();
    }
  }

 private:
  enum class Step : uint8_t { Open, Call, Name, Argument, Done, Failed };

  bool take_structure(char c) {
    if (is_space(c)) return true;
    if (step_ == Step::Open) {
      in_list_ = c == '[';
      step_ = in_list_ ? Step::Call : Step::Name;
      return in_list_;
    }
    if (c == ',') return true;
    if (c == ']' && in_list_) {
      step_ = any_ ? Step::Done : Step::Failed;
      return true;
    }
    step_ = is_name(c) ? Step::Name : Step::Failed;
    return false;
  }

  bool take_name(char c, CallSink& sink) {
    if (is_name(c)) {
      name_ += c;
      return true;
    }
    if (c != '(' || name_.empty() || (format_.is_bare() && !tools_.contains(name_))) {
      step_ = Step::Failed;
      return false;
    }
    sink.begin(std::move(name_));
    name_.clear();
    any_ = is_first_ = true;
    step_ = Step::Argument;
    return true;
  }

  bool take_argument(char c, CallSink& sink) {
    if (quote_ != 0) {
      text_ += c;
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
      return true;
    }
    const bool closes = depth_ == 0 && c == ')';
    if (closes || (depth_ == 0 && c == ',')) {
      end_argument(sink);
      if (closes) {
        sink.add_arguments(is_first_ ? "{}" : "}");
        step_ = in_list_ ? Step::Call : Step::Done;
      }
      return true;
    }
    if (c == '"' || c == '\'') quote_ = c;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') --depth_;
    if (depth_ < 0) depth_ = 0;
    text_ += c;
    return true;
  }

  void end_argument(CallSink& sink) {
    const std::string_view text = trimmed(text_);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      std::string out = is_first_ ? "{" : ", ";
      is_first_ = false;
      out += quote_json(trimmed(text.substr(0, equals))) + ": " + python_to_json(text.substr(equals + 1));
      sink.add_arguments(std::move(out));
    }
    text_.clear();
  }

  const ToolFormat& format_;
  const ToolSet& tools_;
  Step step_ = Step::Open;
  std::string name_, text_;
  int depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false, in_list_ = false, is_first_ = true, any_ = false;
};

}  // namespace

std::string python_to_json(std::string_view text) {
  const std::string_view bare = trimmed(text);
  return Literal(bare).convert().value_or(quote_json(bare));
}

std::unique_ptr<CallReader> make_python_reader(const ToolFormat& format, const ToolSet& tools) {
  return std::make_unique<PythonReader>(format, tools);
}

}  // namespace sluice::chat
