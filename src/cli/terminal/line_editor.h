// One message from a terminal, with editing keys and a history that outlives the program. A paste may hold several lines.
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

class LineEditor {
 public:
  // The history is read from and appended to this file; empty: kept in memory only.
  explicit LineEditor(std::string history_file);

  // The line without its end; nothing at Ctrl-D on an empty line or at the end of input. Ctrl-C empties the line.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Line {
    std::string text;
    size_t cursor = 0;   // byte, at the start of a character
    size_t place = 0;    // in the history; history_.size(): the line being written
    std::string parked;  // the line being written, while another one is shown
  };
  enum class Key { Ignore, Redraw, Enter, End };

  Key take(char c, Line& line);
  void take_escape(Line& line);
  void take_paste(Line& line);
  void recall(Line& line, size_t place);
  void redraw(const std::string& prompt, const Line& line) const;
  void remember(const std::string& text);

  std::string file_;
  std::vector<std::string> history_;
};

// While it lives, what is typed is not shown; it is kept for the next line. Ctrl-C is a signal as ever.
class QuietTerminal {
 public:
  QuietTerminal();
  ~QuietTerminal();
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;

 private:
  termios saved_{};
  bool is_terminal_;
};

}  // namespace sluice::cli
