// Follows the bytes of one HTTP answer to its end, without changing them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::route {

class ResponseTracker {
 public:
  enum class Phase : uint8_t { Head, Body, Done, Failed };

  // `bodiless`: the answer to a HEAD request.
  explicit ResponseTracker(bool bodiless) : bodiless_(bodiless) {}

  // How many of the bytes belong to the answer. While the phase is Head, all of them are held back by the caller.
  size_t feed(std::string_view bytes);
  // The other side has closed: the end of an answer without a length, a failure of any other.
  void finish();

  Phase phase() const { return phase_; }
  int status() const { return status_; }
  size_t head_bytes() const { return head_.size(); }
  const std::string& head() const { return head_; }
  // Whether the connection can be used again once it is Done.
  bool keep_alive() const { return keep_alive_ && framing_ != Framing::UntilClose; }

 private:
  enum class Framing : uint8_t { Length, Chunked, UntilClose };
  enum class Part : uint8_t { Size, Data, DataEnd, Trailer };

  void read_head();
  size_t feed_chunks(std::string_view bytes);
  void end_line();

  bool bodiless_;
  Phase phase_ = Phase::Head;
  Framing framing_ = Framing::UntilClose;
  Part part_ = Part::Size;
  std::string head_, line_;
  uint64_t left_ = 0;
  int status_ = 0;
  bool keep_alive_ = true;
};

}  // namespace sluice::route
