// How work that may take long is stopped from outside: by whoever no longer wants it, or by its time limit.
#pragma once

#include "base/result.h"

namespace sluice {

class Interrupt {
 public:
  virtual ~Interrupt() = default;
  // Called by the work on its own thread, about once a millisecond. An error: the work ends with it. May block while
  // others have their turn.
  virtual Status check() = 0;
};

}  // namespace sluice
