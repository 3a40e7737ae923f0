#include "unicode/encode_guard.h"

namespace sluice::unicode {

namespace {

// Patterns in use need a few steps a byte. The first number is for short texts: one match may take all of it.
constexpr uint64_t kSteps = 20'000'000, kStepsPerByte = 256;

}  // namespace

EncodeGuard::EncodeGuard(size_t bytes, Interrupt* interrupt)
    : interrupt_(interrupt), budget_(kSteps + kStepsPerByte * bytes) {}

bool EncodeGuard::spend(uint64_t steps) {
  spent_ += steps;
  return spent_ <= budget_;
}

bool EncodeGuard::look() {
  until_look_ = kLookBytes;
  if (status_ && interrupt_ != nullptr) status_ = interrupt_->check();
  return status_.ok();
}

}  // namespace sluice::unicode
