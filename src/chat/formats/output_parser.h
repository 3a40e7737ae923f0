// The text of an answer to its content, reasoning and tool calls, as it comes. Pieces put together are the same for
// every cut of the text, inside marks and inside characters too.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "chat/formats/output_format.h"
#include "chat/formats/output_pieces.h"

namespace sluice::chat {

// Where an answer goes on from its prompt.
enum class AnswerStart : uint8_t {
  Fresh,      // anything may come
  Reasoning,  // the prompt opened the reasoning
  Content,    // a message is continued
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends what is certain from now on.
  virtual void push(std::string_view text, std::vector<OutputPiece>& out) = 0;
  // The answer has ended. A call without its end keeps the arguments it has.
  virtual void finish(std::vector<OutputPiece>& out) = 0;
  virtual bool in_reasoning() const = 0;
};

// Calls are looked for where the format has them and the set holds tools. Everything shared outlives the parser.
std::unique_ptr<OutputParser> make_output_parser(std::shared_ptr<const OutputFormat> format,
                                                 std::shared_ptr<const ToolSet> tools, AnswerStart start);

// The whole text at once.
ParsedOutput parse_output(const OutputFormat& format, const ToolSet& tools, AnswerStart start,
                          std::string_view text);

// -- of the syntax that has marks of its own

std::unique_ptr<OutputParser> make_harmony_parser(bool has_tools, AnswerStart start);

void append_content(std::string_view text, std::vector<OutputPiece>& out);
void append_reasoning(std::string_view text, std::vector<OutputPiece>& out);

}  // namespace sluice::chat
