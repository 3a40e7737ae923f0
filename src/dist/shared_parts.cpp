#include "dist/shared_parts.h"

#include <fmt/format.h>
#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/system/futex.h"
#include "dist/shared_memory.h"

namespace sluice::dist {

// A cache line, so that ranks do not slow each other down where they look at other seats.
struct alignas(64) SharedParts::Seat {
  std::atomic<uint32_t> barriers;  // that the rank has come to
  std::atomic<uint32_t> sleepers;  // ranks that sleep until it comes to the next
  std::atomic<uint32_t> gone;      // 1: it has left
};

namespace {

// Ranks that have a core each come within microseconds; past that, one of them may need this core. To be woken takes longer
// than ranks usually differ by: only who waits for longer than that sleeps.
constexpr int kSpins = 1000;
constexpr std::chrono::milliseconds kAwake(2);
constexpr int kSpinsPerProgress = 64;
constexpr std::chrono::milliseconds kLongestSleep(1);  // then the group is looked at, and what was posted

size_t mapped_bytes(int ranks, size_t seats, size_t floats_each) {
  return static_cast<size_t>(ranks) * (seats + floats_each * sizeof(float));
}

}  // namespace

std::unique_ptr<SharedParts> SharedParts::make(Communicator& ranks, size_t floats_each) {
  if (ranks.size() == 1) return nullptr;
  std::shared_ptr<std::byte> memory =
      share_memory(ranks, mapped_bytes(ranks.size(), sizeof(Seat), floats_each));
  if (memory == nullptr) {
    log_debug("rank {}: no memory in common with the others of its group", ranks.rank());
    return nullptr;
  }
  return std::unique_ptr<SharedParts>(new SharedParts(ranks, std::move(memory), floats_each));
}

SharedParts::SharedParts(Communicator& ranks, std::shared_ptr<std::byte> memory, size_t floats_each)
    : ranks_(ranks), memory_(std::move(memory)), floats_each_(floats_each) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
}

SharedParts::~SharedParts() {
  leave();
}

// The memory is zeroed, which is where every seat begins.
SharedParts::Seat& SharedParts::seat(int rank) const {
  return reinterpret_cast<Seat*>(memory_.get())[rank];
}

std::span<float> SharedParts::of(int rank) const {
  const size_t seats = static_cast<size_t>(ranks_.size()) * sizeof(Seat);
  auto* first = reinterpret_cast<float*>(memory_.get() + seats);
  return {first + static_cast<size_t>(rank) * floats_each_, floats_each_};
}

void SharedParts::leave() {
  Seat& own = seat(ranks_.rank());
  own.gone.store(1);
  futex_wake_shared(own.barriers);
}

void SharedParts::barrier() {
  Seat& own = seat(ranks_.rank());
  own.barriers.store(++barriers_);
  if (own.sleepers.load() > 0) futex_wake_shared(own.barriers);
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (rank != ranks_.rank()) wait_for(rank);
}

void SharedParts::wait_for(int rank) {
  Seat& other = seat(rank);
  const auto has_come = [&] {
    return static_cast<int32_t>(other.barriers.load(std::memory_order_acquire) - barriers_) >= 0;
  };
  for (int spin = 1; spin <= kSpins; ++spin) {
    if (has_come()) return;
    cpu_relax();
    if (spin % kSpinsPerProgress == 0) ranks_.progress();
  }
  const TimePoint sleeps_at = Clock::now() + kAwake;
  for (;;) {
    const uint32_t seen = other.barriers.load();
    if (has_come()) return;
    if (other.gone.load() != 0) throw GroupFailure(fmt::format("rank {} has left the group", rank));
    if (const std::optional<std::string> lost = ranks_.failure()) throw GroupFailure(*lost);
    ranks_.progress();
    if (Clock::now() < sleeps_at) {
      sched_yield();
      continue;
    }
    other.sleepers.fetch_add(1);
    futex_wait_shared(other.barriers, seen, kLongestSleep);
    other.sleepers.fetch_sub(1);
  }
}

}  // namespace sluice::dist
