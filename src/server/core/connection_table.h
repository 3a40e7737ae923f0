// Which connections there are, from which addresses, and which of them are idle: who gets a place, and who gives one up.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice::server {

class Connection;

struct PlaceLimits {
  int all = 0;
  int of_address = 0;
};

// Of any thread. Only take() and all() need memory; a take() that finds none changes nothing. A connection is idle from
// the end of a request (at first, from its beginning) until the next head is complete, however slowly that comes.
class ConnectionTable {
 public:
  using Handle = std::weak_ptr<Connection>;
  explicit ConnectionTable(PlaceLimits limits) : limits_(limits) {}

  struct Place {
    uint64_t number = 0;
    std::optional<uint64_t> leaving;  // who should go for it
  };
  // A place for a connection from `address`. Where that address has its part already, its longest idle one gives way;
  // where all places are taken, the longest idle of all. Nothing: nobody who could give way is idle.
  std::optional<Place> take(const std::string& address);
  // As take(), for a peer that stands for many clients: only the number of all counts.
  std::optional<Place> take_uncounted() { return take(""); }
  void attach(uint64_t number, Handle connection);
  Handle find(uint64_t number) const;
  std::vector<Handle> all() const;

  void idle(uint64_t number);
  // One that should have left and has got a request meanwhile has its place again.
  void busy(uint64_t number);
  // The connection is over.
  void leave(uint64_t number);

  // Those taken from now on are latecomers.
  void shut();
  // How many came before that, and are still there.
  size_t awaited() const;

 private:
  enum class Stage : uint8_t { Idle, Busy, Leaving };
  using Order = std::list<uint64_t>;  // the longest idle first
  struct Owner {
    int places = 0;  // without those that are leaving
    int entries = 0;
    Order idle;
  };
  using Owners = std::unordered_map<std::string, Owner>;
  // The nodes for the orders are made with it and move between here and there.
  struct Entry {
    Handle connection;
    Stage stage = Stage::Busy;
    Owners::pointer owner = nullptr;  // of an address that counts
    Order all_node, own_node;         // where not idle
    Order::iterator in_all, in_own;
  };

  Entry& add(const std::string& address, uint64_t number);
  void begin_idle(Entry& entry);
  void end_idle(Entry& entry);
  void count(const Entry& entry, int change);
  uint64_t make_room(const Order& candidates);

  const PlaceLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;
  Owners owners_;
  Order idle_;
  int places_ = 0;  // taken, without those that are leaving
  uint64_t last_ = 0;
  std::optional<uint64_t> last_awaited_;
  size_t awaited_ = 0;
};

}  // namespace sluice::server
