// Any answer in any format and any cut: the pieces are the same as those of the whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "chat/formats/output_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using namespace sluice::chat;
  if (size < 3) return 0;
  const auto formats = tool_formats();
  OutputFormat format;
  format.tools = formats[data[0] % formats.size()];
  format.reasoning = reasoning_formats()[data[1] % reasoning_formats().size()];
  const auto start = static_cast<AnswerStart>(data[1] % 3);
  const size_t cut = 1 + data[2] % 17;
  const std::string_view text(reinterpret_cast<const char*>(data + 3), size - 3);
  ToolSet tools;
  tools.add("f", {{"type", "object"}, {"properties", {{"a", {{"type", "string"}}}}}});
  const ParsedOutput whole = parse_output(format, tools, start, text);
  const auto parser =
      make_output_parser(std::make_shared<OutputFormat>(format), std::make_shared<ToolSet>(tools), start);
  std::vector<OutputPiece> pieces;
  for (size_t i = 0; i < text.size(); i += cut) parser->push(text.substr(i, cut), pieces);
  parser->finish(pieces);
  ParsedOutput parts;
  for (const OutputPiece& piece : pieces) parts.add(piece);
  if (parts != whole) std::abort();
  return 0;
}
