#include "dist/shared_messages.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>

#include "base/clock.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/system/futex.h"
#include "dist/shared_memory.h"

namespace sluice::dist {

namespace {

constexpr int kMostRanks = 16;
constexpr size_t kAllRings = size_t{64} << 20, kLargestRing = size_t{8} << 20;

// Of a rank: rung when something was sent to it or was received of it.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleeps;
  std::atomic<uint32_t> gone;
};

// Bytes on their way from one rank to another: messages, each with its length before it.
struct alignas(64) Ring {
  std::atomic<uint64_t> written;  // by the sender, since the start
  alignas(64) std::atomic<uint64_t> read;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

size_t ring_bytes(int ranks) {
  const auto pairs = static_cast<size_t>(ranks) * static_cast<size_t>(ranks - 1);
  return std::min(kLargestRing, kAllRings / pairs / 4096 * 4096);
}

class HostRank : public Communicator {
 public:
  HostRank(std::unique_ptr<Communicator> inner, std::shared_ptr<std::byte> memory)
      : inner_(std::move(inner)),
        memory_(std::move(memory)),
        capacity_(ring_bytes(inner_->size())),
        sending_(static_cast<size_t>(inner_->size())) {}
  ~HostRank() override { leave(); }
  HostRank(const HostRank&) = delete;
  HostRank& operator=(const HostRank&) = delete;

  static size_t memory_bytes(int ranks) {
    const auto count = static_cast<size_t>(ranks);
    return count * sizeof(Bell) + count * count * (sizeof(Ring) + ring_bytes(ranks));
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::optional<std::string> failure() const override { return inner_->failure(); }
  void abandon() override {
    leave();
    inner_->abandon();
  }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Outgoing& item : out) queue(item.to).push_back({.bytes = item.bytes});
    receiving_.clear();
    for (const Incoming& item : in) receiving_.push_back({item, 0, false});
    try {
      wait_until_done(out);
    } catch (...) {
      // What is left of the caller's bytes is not there any more.
      for (std::deque<Sending>& queue : sending_) queue.clear();
      throw;
    }
  }

  void post(int to, std::span<const std::byte> bytes) override {
    std::deque<Sending>& waiting = queue(to);
    waiting.push_back({.bytes = bytes});
    send_on(to);
    if (waiting.empty()) return;
    Sending& last = waiting.back();
    last.kept.assign(bytes.begin(), bytes.end());
    last.bytes = last.kept;
  }

  void take_turns() override { awake_ = {}; }

  void progress() override {
    for (int peer = 0; peer < size(); ++peer)
      if (!queue(peer).empty()) send_on(peer);
  }

 private:
  // As SharedParts waits; who waits for an order of rank 0 may wait for hours.
  static constexpr int kSpins = 1000;
  static constexpr std::chrono::milliseconds kAwake{2};
  static constexpr std::chrono::microseconds kFirstSleep{500}, kLongestSleep{100'000};

  struct Sending {
    std::span<const std::byte> bytes;
    std::vector<std::byte> kept{};  // of a message that was posted
    size_t done = 0;
    bool announced = false;  // its length is sent
  };
  struct Receiving {
    Incoming item;
    size_t done;
    bool announced;
  };

  std::deque<Sending>& queue(int peer) { return sending_[static_cast<size_t>(peer)]; }
  Bell& bell(int rank) const { return reinterpret_cast<Bell*>(memory_.get())[rank]; }
  Ring& ring(int from, int to) const {
    const auto count = static_cast<size_t>(size());
    const size_t index = static_cast<size_t>(from) * count + static_cast<size_t>(to);
    return *reinterpret_cast<Ring*>(memory_.get() + count * sizeof(Bell) +
                                    index * (sizeof(Ring) + capacity_));
  }

  void leave() {
    bell(rank()).gone.store(1);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) ring_bell(peer);
  }
  void ring_bell(int peer) const {
    Bell& other = bell(peer);
    other.rings.fetch_add(1);
    if (other.sleeps.load() != 0) futex_wake_shared(other.rings);
  }

  // REQUIRES: the ring has room for the bytes, or has them.
  void copy_in(Ring& to, uint64_t at, std::span<const std::byte> bytes) const {
    const size_t offset = at % capacity_, first = std::min(bytes.size(), capacity_ - offset);
    std::memcpy(to.bytes() + offset, bytes.data(), first);
    if (first < bytes.size()) std::memcpy(to.bytes(), bytes.data() + first, bytes.size() - first);
  }
  void copy_out(Ring& from, uint64_t at, std::span<std::byte> bytes) const {
    const size_t offset = at % capacity_, first = std::min(bytes.size(), capacity_ - offset);
    std::memcpy(bytes.data(), from.bytes() + offset, first);
    if (first < bytes.size()) std::memcpy(bytes.data() + first, from.bytes(), bytes.size() - first);
  }

  // As much of what waits for the peer as there is room for.
  bool send_on(int peer) {
    Ring& to = ring(rank(), peer);
    std::deque<Sending>& waiting = queue(peer);
    bool moved = false;
    while (!waiting.empty()) {
      Sending& item = waiting.front();
      uint64_t at = to.written.load(std::memory_order_relaxed);
      size_t room = capacity_ - static_cast<size_t>(at - to.read.load(std::memory_order_acquire));
      if (!item.announced) {
        const uint64_t length = item.bytes.size();
        if (room < sizeof length) break;
        copy_in(to, at, std::as_bytes(std::span(&length, 1)));
        at += sizeof length;
        room -= sizeof length;
        item.announced = true;
        moved = true;
      }
      const size_t piece = std::min(room, item.bytes.size() - item.done);
      copy_in(to, at, item.bytes.subspan(item.done, piece));
      item.done += piece;
      moved |= piece > 0;
      to.written.store(at + piece);
      if (item.done < item.bytes.size()) break;
      waiting.pop_front();
    }
    if (moved) ring_bell(peer);
    return moved;
  }

  // What has come of the oldest message that is wanted of the item's sender.
  bool receive_on(Receiving& wanted) {
    Ring& from = ring(wanted.item.from, rank());
    uint64_t at = from.read.load(std::memory_order_relaxed);
    size_t there = static_cast<size_t>(from.written.load(std::memory_order_acquire) - at);
    const uint64_t begin = at;
    if (!wanted.announced) {
      uint64_t length = 0;
      if (there < sizeof length) return false;
      copy_out(from, at, std::as_writable_bytes(std::span(&length, 1)));
      if (length != wanted.item.bytes.size())
        throw GroupFailure(fmt::format("rank {} sent {} bytes, rank {} expects {}", wanted.item.from, length,
                                       rank(), wanted.item.bytes.size()));
      at += sizeof length;
      there -= sizeof length;
      wanted.announced = true;
    }
    const size_t piece = std::min(there, wanted.item.bytes.size() - wanted.done);
    copy_out(from, at, wanted.item.bytes.subspan(wanted.done, piece));
    wanted.done += piece;
    from.read.store(at + piece);
    if (at + piece == begin) return false;
    ring_bell(wanted.item.from);
    return true;
  }
  static bool is_done(const Receiving& item) { return item.announced && item.done == item.item.bytes.size(); }

  // Whether anything has moved.
  bool move_on() {
    bool moved = false;
    for (int peer = 0; peer < size(); ++peer)
      if (!queue(peer).empty()) moved |= send_on(peer);
    uint32_t behind = 0;  // senders of which an older message is still to come
    for (Receiving& item : receiving_) {
      const uint32_t sender = uint32_t{1} << item.item.from;
      if (is_done(item) || (behind & sender) != 0) continue;
      moved |= receive_on(item);
      if (!is_done(item)) behind |= sender;
    }
    return moved;
  }
  bool all_done(std::span<const Outgoing> out) {
    return std::all_of(out.begin(), out.end(),
                       [&](const Outgoing& item) { return queue(item.to).empty(); }) &&
           std::all_of(receiving_.begin(), receiving_.end(), is_done);
  }

  void expect_peers(std::span<const Outgoing> out, uint32_t gone) {
    if (const std::optional<std::string> lost = failure()) throw GroupFailure(*lost);
    const auto expect = [&](int peer) {
      if ((gone >> peer & 1) != 0) throw GroupFailure(fmt::format("rank {} has left the group", peer));
    };
    for (const Outgoing& item : out)
      if (!queue(item.to).empty()) expect(item.to);
    for (const Receiving& item : receiving_)
      if (!is_done(item)) expect(item.item.from);
  }

  void wait_until_done(std::span<const Outgoing> out) {
    Bell& own = bell(rank());
    std::chrono::microseconds sleep = kFirstSleep;
    TimePoint sleeps_at = Clock::now() + awake_;
    for (int idle = 0;; ++idle) {
      const uint32_t seen = own.rings.load();
      const uint32_t gone = idle >= kSpins ? gone_ranks() : 0;
      if (move_on()) idle = 0;
      if (all_done(out)) return;
      if (idle < kSpins) {
        cpu_relax();
        continue;
      }
      // Those that had left before the last move: what they sent has come.
      expect_peers(out, gone);
      if (idle == kSpins) sleeps_at = Clock::now() + awake_;
      if (Clock::now() < sleeps_at) {
        sched_yield();
        continue;
      }
      own.sleeps.store(1);
      if (own.rings.load() == seen) futex_wait_shared(own.rings, seen, sleep);
      own.sleeps.store(0);
      sleep = std::min(2 * sleep, kLongestSleep);
    }
  }
  uint32_t gone_ranks() const {
    uint32_t gone = 0;
    for (int peer = 0; peer < size(); ++peer)
      if (bell(peer).gone.load() != 0) gone |= uint32_t{1} << peer;
    return gone;
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<std::byte> memory_;
  size_t capacity_;
  std::chrono::milliseconds awake_ = kAwake;
  std::vector<std::deque<Sending>> sending_;  // by receiver, the oldest first
  std::vector<Receiving> receiving_;
};

}  // namespace

std::unique_ptr<Communicator> through_shared_memory(std::unique_ptr<Communicator> ranks) {
  if (ranks->size() < 2 || ranks->size() > kMostRanks) return ranks;
  std::shared_ptr<std::byte> memory = share_memory(*ranks, HostRank::memory_bytes(ranks->size()));
  if (memory == nullptr) return ranks;
  log_debug("rank {}: messages by shared memory", ranks->rank());
  return std::make_unique<HostRank>(std::move(ranks), std::move(memory));
}

}  // namespace sluice::dist
