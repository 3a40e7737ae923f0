#include "base/system/memory_reserve.h"

#include <cstring>
#include <new>

#include "base/check.h"

namespace sluice {

namespace {

thread_local MemoryReserve* reserve_of_thread = nullptr;

}  // namespace

MemoryReserve::MemoryReserve() {
  SLUICE_CHECK(reserve_of_thread == nullptr);
  reserve_of_thread = this;
  std::set_new_handler(&MemoryReserve::on_failure);
  refill();
}

MemoryReserve::~MemoryReserve() {
  SLUICE_CHECK(reserve_of_thread == this);
  reserve_of_thread = nullptr;
  give_back();
}

// Returning means: try again.
void MemoryReserve::on_failure() {
  MemoryReserve* reserve = reserve_of_thread;
  if (reserve == nullptr || reserve->filling_ || reserve->held_ == 0) throw std::bad_alloc();
  reserve->give_back();
}

void MemoryReserve::give_back() {
  while (held_ > 0) ::operator delete(blocks_[--held_]);
}

bool MemoryReserve::regain() {
  MemoryReserve* reserve = reserve_of_thread;
  return reserve == nullptr || reserve->whole() || reserve->refill();
}

bool MemoryReserve::refill() {
  filling_ = true;
  while (held_ < kBlocks) {
    void* block = ::operator new(kBlockBytes, std::nothrow);
    if (block == nullptr) break;
    std::memset(block, 0, kBlockBytes);  // pages that were never written are not there yet
    blocks_[held_++] = block;
  }
  filling_ = false;
  return whole();
}

}  // namespace sluice
