// Calls between their marks, one reader per syntax. A reader is given the text as it comes, takes what is certain and
// goes on from there; what it writes does not depend on the cuts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/formats/output_format.h"
#include "chat/formats/output_pieces.h"
#include "chat/formats/text_cursor.h"

namespace sluice::chat {

// Where readers put what they found.
class CallSink {
 public:
  explicit CallSink(std::vector<OutputPiece>& out, int& calls) : out_(out), calls_(calls) {}
  void begin(std::string name, std::string id = {}) {
    out_.emplace_back(CallPiece{calls_++, std::move(name), std::move(id)});
  }
  // Of the call that was begun last.
  void add_arguments(std::string text);

 private:
  std::vector<OutputPiece>& out_;
  int& calls_;
};

enum class ReadState : uint8_t {
  NeedMore,
  Done,    // the cursor is behind the calls
  Failed,  // this is no call; nothing was put into the sink
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual ReadState read(TextCursor& cursor, CallSink& sink) = 0;
};

// The format and the tools outlive the reader.
std::unique_ptr<CallReader> make_call_reader(const ToolFormat& format, const ToolSet& tools);

// -- one per syntax

std::unique_ptr<CallReader> make_json_reader(const ToolFormat& format, const ToolSet& tools);
std::unique_ptr<CallReader> make_named_reader(const ToolFormat& format, const ToolSet& tools);
std::unique_ptr<CallReader> make_python_reader(const ToolFormat& format, const ToolSet& tools);

// The arguments of a call whose name is known, as JSON.
class ArgumentReader {
 public:
  virtual ~ArgumentReader() = default;
  // Appends to `out`; never fails.
  virtual ReadState read(TextCursor& cursor, std::string& out) = 0;
};
std::unique_ptr<ArgumentReader> make_json_arguments();
std::unique_ptr<ArgumentReader> make_tagged_arguments(const ToolFormat& format, const ToolSet& tools,
                                                      std::string tool);
std::unique_ptr<ArgumentReader> make_word_arguments(const ToolFormat& format);

// A value that is written without quotes: as JSON where it is one of a type that is allowed, else as a string.
std::string value_of_types(std::string_view text, const std::vector<std::string>& types);
// A literal of Python as JSON; a string of its text where it is none.
std::string python_to_json(std::string_view text);

}  // namespace sluice::chat
