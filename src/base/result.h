// Errors as values. Everything read from a file, a socket or the command line returns Result<T>.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace sluice {

enum class ErrorCode : uint8_t {
  InvalidArgument,  // the caller asked for something that makes no sense
  NotFound,         // a named file, model or tensor does not exist
  Corrupt,          // a file breaks the rules of its format
  Unsupported,      // well formed, but not something this build can do
  LimitExceeded,    // a size, depth or count over its limit
  Io,               // the operating system refused
  Unavailable,      // a device, port or network is not there
  Numerical,        // a computation gave values that are no numbers
  Internal,         // our own fault
};

// A message names the thing, its value and the limit, so that it can be shown to a user as it is.
struct Error {
  ErrorCode code = ErrorCode::Internal;
  std::string message;
  std::string field = {};  // of a request, that is at fault: "top_k"; empty where there is none
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok()
  T& value() & {
    SLUICE_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    SLUICE_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    SLUICE_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok()
  const Error& error() const& {
    SLUICE_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    SLUICE_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  // REQUIRES: !ok()
  const Error& error() const& {
    SLUICE_CHECK(!ok_);
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace sluice
