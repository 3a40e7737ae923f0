// Reads the answer to a streamed completion as its bytes come: HTTP framing, then events. It looks for what it needs of
// an event and parses no JSON, so that thousands of streams cost little.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::lab {

class StreamParser {
 public:
  struct Found {
    int pieces = 0;     // events that carry text or tokens
    bool done = false;  // the answer is complete
  };
  // Takes what was received. Problems end up in error().
  Found feed(std::string_view bytes);
  // The connection was closed; an answer without a length ends with it.
  void close();

  const std::string& error() const { return error_; }
  int prompt_tokens() const { return prompt_tokens_; }  // 0: not said
  int output_tokens() const { return output_tokens_; }  // 0: not said

 private:
  enum class State : uint8_t { Head, ChunkSize, Chunk, ChunkEnd, Length, ToClose, Done };
  bool take_head(Found& found);
  bool take_chunk_size();
  void take_body(std::string_view body, Found& found);
  void take_line(std::string_view line, Found& found);
  void fail(std::string message);

  State state_ = State::Head;
  std::string pending_;  // bytes of the framing that are not complete
  std::string line_;     // an event's line that is not complete
  std::string body_;     // of an answer that is no stream: its error
  int status_ = 0;
  bool ended_ = false;  // [DONE] was seen
  uint64_t left_ = 0;   // bytes of the chunk or of the answer
  int prompt_tokens_ = 0, output_tokens_ = 0;
  std::string error_;
};

}  // namespace sluice::lab
