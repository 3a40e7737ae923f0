// What encoding one text may cost: steps of the patterns that a file brought along, and the patience of whoever asked.
#pragma once

#include <cstdint>

#include "base/interrupt.h"
#include "base/result.h"

namespace sluice::unicode {

class EncodeGuard {
 public:
  // `bytes` of text; `interrupt` may be null.
  explicit EncodeGuard(size_t bytes, Interrupt* interrupt = nullptr);

  // Steps that may be spent on matching in the whole text.
  uint64_t budget() const { return budget_; }
  // Takes from the budget; false where it is used up.
  bool spend(uint64_t steps);

  // Counts bytes that were worked on and looks at the interrupt now and then. False: stop; status() says why.
  bool go_on(size_t bytes) {
    if (bytes < until_look_) {
      until_look_ -= bytes;
      return true;
    }
    return look();
  }
  const Status& status() const { return status_; }

 private:
  static constexpr size_t kLookBytes = size_t{4} << 10;
  bool look();

  Interrupt* interrupt_;
  uint64_t budget_, spent_ = 0;
  size_t until_look_ = kLookBytes;
  Status status_;
};

}  // namespace sluice::unicode
