#include "cli/terminal/line_editor.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/system/terminal.h"

namespace sluice::cli {

namespace {

constexpr size_t kHistory = 1000;
constexpr size_t kLineBytes = size_t{1} << 20;

// The terminal gives single keys, and pastes between marks, while this lives.
class RawTerminal {
 public:
  RawTerminal() {
    tcgetattr(STDIN_FILENO, &saved_);
    termios raw = saved_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fmt::print("\033[?2004h");
  }
  ~RawTerminal() {
    fmt::print("\033[?2004l");
    std::fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios saved_{};
};

bool read_key(char& c) {
  return ::read(STDIN_FILENO, &c, 1) == 1;
}

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

size_t before(const std::string& text, size_t at) {
  if (at == 0) return 0;
  do {
    --at;
  } while (at > 0 && continues(text[at]));
  return at;
}

size_t after(const std::string& text, size_t at) {
  if (at >= text.size()) return text.size();
  do {
    ++at;
  } while (at < text.size() && continues(text[at]));
  return at;
}

// What stands on the screen for the text, which is one line there.
std::string on_one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "↵";
    } else {
      out += c == '\t' ? ' ' : c;
    }
  }
  return escape_controls(out);
}

}  // namespace

LineEditor::LineEditor(std::string history_file) : file_(std::move(history_file)) {
  std::ifstream file(file_);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) history_.push_back(line);
  if (history_.size() > kHistory) history_.erase(history_.begin(), history_.end() - kHistory);
}

void LineEditor::remember(const std::string& text) {
  if (text.empty() || (!history_.empty() && history_.back() == text)) return;
  history_.push_back(text);
  const bool is_line = text.find('\n') == std::string::npos;  // as each entry of the file is
  if (is_line && !file_.empty()) std::ofstream(file_, std::ios::app) << text << "\n";
}

void LineEditor::recall(Line& line, size_t place) {
  if (place > history_.size()) return;
  if (line.place == history_.size()) line.parked = line.text;
  line.place = place;
  line.text = place == history_.size() ? line.parked : history_[place];
  line.cursor = line.text.size();
}

// What the terminal sends between the marks of a paste: text, in which line breaks do not end the message.
void LineEditor::take_paste(Line& line) {
  constexpr std::string_view kEnd = "\033[201~";
  std::string text;
  for (char c = 0; !text.ends_with(kEnd) && read_key(c);)
    if (text.size() < kLineBytes + kEnd.size()) text += c;
  if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool pair = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (pair) continue;
    const char c = text[i] == '\r' ? '\n' : text[i];
    if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t') clean += c;
  }
  clean.resize(std::min(clean.size(), kLineBytes - std::min(kLineBytes, line.text.size())));
  line.text.insert(line.cursor, clean);
  line.cursor += clean.size();
}

// CSI sequences: arrows, Home, End, Delete, pastes; anything else is swallowed up to its final letter.
void LineEditor::take_escape(Line& line) {
  char c = 0;
  if (!read_key(c) || (c != '[' && c != 'O') || !read_key(c)) return;
  std::string number;
  for (int i = 0; c >= '0' && c <= ';' && i < 16; ++i) {
    number += c;
    if (!read_key(c)) return;
  }
  if (c == 'A' && line.place > 0) recall(line, line.place - 1);
  if (c == 'B') recall(line, line.place + 1);
  if (c == 'C') line.cursor = after(line.text, line.cursor);
  if (c == 'D') line.cursor = before(line.text, line.cursor);
  if (c == 'H' || (c == '~' && number == "1")) line.cursor = 0;
  if (c == 'F' || (c == '~' && number == "4")) line.cursor = line.text.size();
  if (c == '~' && number == "3") line.text.erase(line.cursor, after(line.text, line.cursor) - line.cursor);
  if (c == '~' && number == "200") take_paste(line);
}

LineEditor::Key LineEditor::take(char c, Line& line) {
  switch (c) {
    case '\r':
    case '\n':
      return Key::Enter;
    case 4:  // Ctrl-D
      if (line.text.empty()) return Key::End;
      line.text.erase(line.cursor, after(line.text, line.cursor) - line.cursor);
      break;
    case 3:  // Ctrl-C
      line = Line{.place = history_.size()};
      break;
    case 1:
      line.cursor = 0;
      break;  // Ctrl-A
    case 5:
      line.cursor = line.text.size();
      break;  // Ctrl-E
    case 11:
      line.text.resize(line.cursor);
      break;  // Ctrl-K
    case 21:  // Ctrl-U
      line.text.erase(0, line.cursor);
      line.cursor = 0;
      break;
    case 8:
    case 127: {
      const size_t from = before(line.text, line.cursor);
      line.text.erase(from, line.cursor - from);
      line.cursor = from;
      break;
    }
    case 27:
      take_escape(line);
      break;
    default:
      if (static_cast<unsigned char>(c) < 32 && c != '\t') return Key::Ignore;
      if (line.text.size() >= kLineBytes) return Key::Ignore;
      line.text.insert(line.cursor++, 1, c);
  }
  return Key::Redraw;
}

// Of a line that is longer than the screen is wide, the part around the cursor.
void LineEditor::redraw(const std::string& prompt, const Line& line) const {
  const size_t width = terminal_width(STDOUT_FILENO);
  const size_t room = width > prompt.size() + 1 ? width - prompt.size() - 1 : kLineBytes;
  // No character that is shown has more than four bytes; the rest is not looked at.
  const size_t from = line.cursor > 4 * room ? after(line.text, line.cursor - 4 * room - 1) : 0;
  std::string left = on_one_line(std::string_view(line.text).substr(from, line.cursor - from));
  std::string right = on_one_line(std::string_view(line.text).substr(line.cursor, 4 * room));
  while (columns_of(left) > room) left.erase(0, after(left, room / 4));
  const size_t used = columns_of(left);
  while (!right.empty() && used + columns_of(right) > room) right.resize(before(right, right.size()));
  fmt::print("\r\033[K{}{}{}", prompt, left, right);
  if (const size_t back = columns_of(right); back > 0) fmt::print("\033[{}D", back);
  std::fflush(stdout);
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  const RawTerminal raw;
  Line line{.place = history_.size()};
  redraw(prompt, line);
  while (true) {
    char c = 0;
    if (!read_key(c)) return std::nullopt;
    const Key key = take(c, line);
    if (key == Key::End) return std::nullopt;
    if (key == Key::Enter) break;
    if (key == Key::Redraw) redraw(prompt, line);
  }
  fmt::print("\r\n");
  std::fflush(stdout);
  remember(line.text);
  return line.text;
}

QuietTerminal::QuietTerminal() : is_terminal_(tcgetattr(STDIN_FILENO, &saved_) == 0) {
  if (!is_terminal_) return;
  termios quiet = saved_;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  quiet.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
}

QuietTerminal::~QuietTerminal() {
  if (is_terminal_) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
}

}  // namespace sluice::cli
