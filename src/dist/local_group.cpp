#include "dist/local_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace sluice::dist {

namespace {

// What the ranks share. Messages are copied in and copied out.
struct Mailboxes {
  explicit Mailboxes(int ranks)
      : size(ranks),
        boxes(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        gone(static_cast<size_t>(ranks), false) {}

  std::deque<std::vector<std::byte>>& box(int from, int to) {
    return boxes[static_cast<size_t>(from) * static_cast<size_t>(size) + static_cast<size_t>(to)];
  }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<std::vector<std::byte>>> boxes;  // by sender and receiver
  std::vector<bool> gone;                                 // by rank
};

class LocalRank : public Communicator {
 public:
  LocalRank(std::shared_ptr<Mailboxes> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  ~LocalRank() override { leave(); }
  LocalRank(const LocalRank&) = delete;
  LocalRank& operator=(const LocalRank&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return shared_->size; }
  void abandon() override { leave(); }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::unique_lock lock(shared_->mutex);
    for (const Outgoing& item : out)
      shared_->box(rank_, item.to).emplace_back(item.bytes.begin(), item.bytes.end());
    shared_->changed.notify_all();
    for (const Incoming& item : in) receive(lock, item);
  }

  void post(int to, std::span<const std::byte> bytes) override {
    const Outgoing out{to, bytes};
    exchange({&out, 1}, {});
  }

 private:
  void leave() {
    const std::lock_guard lock(shared_->mutex);
    shared_->gone[static_cast<size_t>(rank_)] = true;
    shared_->changed.notify_all();
  }
  void receive(std::unique_lock<std::mutex>& lock, const Incoming& item) {
    std::deque<std::vector<std::byte>>& box = shared_->box(item.from, rank_);
    shared_->changed.wait(lock,
                          [&] { return !box.empty() || shared_->gone[static_cast<size_t>(item.from)]; });
    if (box.empty()) throw GroupFailure(fmt::format("rank {} has left the group", item.from));
    if (box.front().size() != item.bytes.size())
      throw GroupFailure(fmt::format("rank {} sent {} bytes, rank {} expects {}", item.from,
                                     box.front().size(), rank_, item.bytes.size()));
    std::copy(box.front().begin(), box.front().end(), item.bytes.begin());
    box.pop_front();
  }

  std::shared_ptr<Mailboxes> shared_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int size) {
  auto shared = std::make_shared<Mailboxes>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<LocalRank>(shared, rank));
  return ranks;
}

}  // namespace sluice::dist
