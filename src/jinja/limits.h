// What one template may cost, and the error that says which bound was reached.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/interrupt.h"
#include "base/result.h"

namespace sluice::jinja {

struct Limits {
  size_t source_bytes = size_t{1} << 20;
  size_t depth = 200;        // of blocks, expressions, values and macro calls, each by itself
  size_t nodes = 100'000;    // of the syntax tree
  size_t steps = 1'000'000;  // nodes evaluated, items visited and 256 bytes of text handled
  size_t output_bytes = size_t{8} << 20;
  size_t value_bytes = size_t{64} << 20;  // live values made while rendering
  size_t range_items = 1'000'000;
  size_t evaluation_depth = 1'000;  // nested evaluations: macro depth times the nesting of their bodies
};

// Thrown inside the interpreter only; ChatTemplate turns it into an Error. `verbatim` messages come from
// raise_exception and are shown as the template wrote them, others get the line put in front.
struct TemplateError {
  ErrorCode code = ErrorCode::InvalidArgument;
  std::string message;
  bool verbatim = false;
};

[[noreturn]] void raise(std::string message);
[[noreturn]] void raise_limit(std::string_view what, size_t limit);

// Counts what a rendering has used. One per rendering.
class Budget {
 public:
  // `interrupt` may be null.
  explicit Budget(const Limits& limits, Interrupt* interrupt = nullptr)
      : limits_(limits), interrupt_(interrupt) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  void step(size_t count = 1) {
    steps_ += count;
    if (steps_ >= next_look_) look();
  }
  // Text is paid for by length, so that a million steps are also a bound on bytes moved.
  void step_bytes(size_t bytes) { step(bytes / 256); }

  // Fails where `bytes` more could not be held.
  void require(size_t bytes) const {
    if (bytes > limits_.value_bytes - value_bytes_) raise_limit("bytes of values", limits_.value_bytes);
  }
  void charge(size_t bytes) {
    require(bytes);
    value_bytes_ += bytes;
  }
  void refund(size_t bytes) { value_bytes_ -= bytes; }

 private:
  // Fails where the steps are used up or the interrupt says so.
  void look();

  static constexpr size_t kLookSteps = 2048;
  Limits limits_;
  Interrupt* interrupt_;
  size_t steps_ = 0, next_look_ = kLookSteps;
  size_t value_bytes_ = 0;
};

// Counts one level of recursion for as long as it lives.
class DepthGuard {
 public:
  DepthGuard(size_t& depth, size_t limit, std::string_view what) : depth_(depth) {
    if (depth_ >= limit) raise_limit(what, limit);
    ++depth_;
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  size_t& depth_;
};

}  // namespace sluice::jinja
