// The border that no exception crosses.
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "base/result.h"

namespace sluice::llm {

// What the function returns, or what it throws as an error.
template <class Function>
auto guarded(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::Unavailable, "out of memory"};
  } catch (const std::system_error& problem) {
    return Error{ErrorCode::Io, problem.what()};
  } catch (const std::exception& problem) {
    return Error{ErrorCode::Internal, problem.what()};
  } catch (...) {
    return Error{ErrorCode::Internal, "an exception that is no std::exception"};
  }
}

}  // namespace sluice::llm
