// Where a device keeps the tokens that it samples, one slot for each sequence. Slot 0 is for rows that nobody wants.
#pragma once

#include <utility>
#include <vector>

namespace sluice::runtime {

class TokenSlots {
 public:
  explicit TokenSlots(int count) : count_(count) {}

  // Given back when it goes; the slots outlive it. Number 0: none.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept
        : slots_(std::exchange(other.slots_, nullptr)), number_(std::exchange(other.number_, 0)) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(slots_, other.slots_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Slot() {
      if (slots_ != nullptr) slots_->free_.push_back(number_);
    }
    int number() const { return number_; }

   private:
    friend class TokenSlots;
    Slot(TokenSlots* slots, int number) : slots_(slots), number_(number) {}
    TokenSlots* slots_ = nullptr;
    int number_ = 0;
  };

  // No slot where all are taken.
  Slot take() {
    if (free_.empty()) {
      if (next_ >= count_) return {};
      free_.reserve(static_cast<size_t>(next_));  // giving back never allocates
      return {this, next_++};
    }
    const int number = free_.back();
    free_.pop_back();
    return {this, number};
  }

 private:
  int count_;
  std::vector<int> free_;
  int next_ = 1;
};

}  // namespace sluice::runtime
