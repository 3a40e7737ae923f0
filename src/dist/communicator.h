// How the ranks of a group speak to each other. A transport moves bytes between two ranks; the collectives are composed of
// that here, so that every transport adds up in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice::dist {

// A rank is gone, or two disagree about what they do: the group cannot go on. Its text names the rank. Thrown, since it
// happens in the midst of a forward pass, where devices throw too; Executor turns it into the step's error.
class GroupFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Elements [begin, end) of something that ranks share.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The part of `count` things that falls to `rank` of `size`; equal parts where that divides.
constexpr Range share_of(int64_t count, int rank, int size) {
  return {count * rank / size, count * (rank + 1) / size};
}

// One thread at a time. All ranks make the same calls in the same order; each call throws GroupFailure.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  struct Outgoing {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
  };
  // All of them at once; returns when everything has left and everything has come. What one rank sends to another arrives in
  // the order it was sent, and is received in pieces of the lengths it was sent in.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // Sends and returns at once: the bytes are kept until the other rank takes them. They arrive as those of exchange() do, in
  // the same order with them.
  virtual void post(int to, std::span<const std::byte> bytes) = 0;
  // Lets what was posted move on. A rank that computes for long calls it now and then: the transport may need its sender.
  virtual void progress() {}

  // Ranks compute on the same cores, one after the other: one that waits leaves its core to them soon.
  virtual void take_turns() {}

  // The group has failed: the others are neither told nor waited for any more.
  virtual void abandon() {}
  // Thread-safe. A rank that is known to be lost, and how, though no call has waited for it yet.
  virtual std::optional<std::string> failure() const { return std::nullopt; }

  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  // Bytes whose number the receiver does not know.
  void send_message(int to, std::span<const std::byte> bytes);
  void post_message(int to, std::span<const std::byte> bytes);
  std::vector<std::byte> receive_message(int from);

  // Returns when all ranks have called it.
  void barrier();
  // `bytes` of `root` on every rank.
  void broadcast(int root, std::span<std::byte> bytes);
  // Of `all`, which is cut into rows of `width` numbers, the rows share_of(rows, r, size()) of every rank r, of which each
  // brings its own. REQUIRES: width divides the number of values.
  void all_gather(std::span<float> all, int64_t width = 1);
  // parts: of every rank, in their order, the rows of its `values` that are this rank's share.
  void all_to_all(std::span<const float> values, int64_t width, std::span<float> parts);
  // The sum over all ranks, added up in the order of ranks: every rank gets the same bits.
  void all_reduce(std::span<float> values);
  // The same of the rank's own rows alone; what else `values` holds afterwards is not said. Returns the range of values.
  Range reduce_scatter(std::span<float> values, int64_t width = 1);

 private:
  void check_peer(int rank) const;
  Range values_of(int rank, size_t count, int64_t width) const;
  void all_reduce_at_once(std::span<float> values);

  std::vector<float> parts_;  // of other ranks
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

// A group of one.
class Solo : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override;
  void post(int to, std::span<const std::byte> bytes) override;
};

// Every stride-th rank of a larger group, which outlives it. REQUIRES: the larger group's own rank is among them.
class Subgroup : public Communicator {
 public:
  Subgroup(Communicator& world, int first, int count, int stride = 1);

  int rank() const override { return (world_.rank() - first_) / stride_; }
  int size() const override { return count_; }
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override;
  void post(int to, std::span<const std::byte> bytes) override { world_.post(of_world(to), bytes); }
  void progress() override { world_.progress(); }
  void abandon() override { world_.abandon(); }
  std::optional<std::string> failure() const override { return world_.failure(); }

 private:
  int of_world(int rank) const { return first_ + rank * stride_; }

  Communicator& world_;
  int first_, count_, stride_;
  std::vector<Outgoing> world_out_;
  std::vector<Incoming> world_in_;
};

}  // namespace sluice::dist
