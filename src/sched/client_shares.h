// Who has had how much of the machine. The unit is tokens computed over the last 10 s, older ones fading, divided by the
// client's weight:
//
//   usage_c(now) = sum over tokens of client c of exp(-(now - computed at) / 10 s) / weight_c
//
// Clients with work stand in order of what they have had since they have work, tokens per weight; whoever has the least
// goes first. A client that had no work begins level with the least of the others, less a token: it is next, what it did
// not use is gone, and what others borrowed meanwhile is not held against them. For the same reason nobody who asks is
// further behind the first than by what all together have had over the last 10 s, per its weight. Pure: time comes in
// by advance().
#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace sluice::sched {

class ClientShares {
 public:
  static constexpr Seconds kWindow{10};
  static constexpr size_t kMostIdle = 4096;  // clients without work that are remembered, each for a window

  struct Client {
    std::string name;
    double weight = 1;
    int requests = 0;   // waiting, running or preempted
    int sequences = 0;  // that run

    // Of the step that is being planned.
    int64_t demand = 0;        // tokens that its running and next requests could use
    int64_t prompt_quota = 0;  // tokens of prompts that it may still have
    double kv_part = 0;        // of the KV blocks, that its running requests hold
    uint64_t claimed = 0;      // number of the last step that its demand was counted for
    uint64_t passed = 0;       // number of the last step in which its next request did not fit

   private:
    friend class ClientShares;
    double used_ = 0;      // in tokens of the epoch
    double standing_ = 0;  // tokens per weight
    uint64_t number_ = 0;  // of its coming: equals go in this order
    bool queued_ = false;
    TimePoint left_{};
    std::list<Client*>::iterator idle_place_;
  };
  struct LeastServed {
    bool operator()(const Client* a, const Client* b) const {
      return a->standing_ != b->standing_ ? a->standing_ < b->standing_ : a->number_ < b->number_;
    }
  };
  using Order = std::set<Client*, LeastServed>;

  // Time does not go back.
  void advance(TimePoint now);
  // A request of the client came; its weight counts from now on. The client stays where it is until its last request has
  // left.
  Client& join(const std::string& name, double weight);
  void leave(Client& client);
  const Client* find(const std::string& name) const;
  // Whether it has requests that could start.
  void set_queued(Client& client, bool queued);
  void charge(Client& client, int64_t tokens);

  // Those with requests that could start, least served first. Changed by set_queued() and charge().
  const Order& queued() const { return queued_; }
  // More than one client has work.
  bool contended() const { return active_.size() > 1; }
  size_t active() const { return active_.size(); }
  // The client's part of something that all clients with work share. REQUIRES: it has work.
  double share(const Client& client, double whole) const { return whole * client.weight / active_weight_; }
  // The part of a client that has this weight and may have no work yet.
  double part_of(const Client* client, double weight) const {
    const bool counted = client != nullptr && client->requests > 0;
    return counted ? client->weight / active_weight_ : weight / (active_weight_ + weight);
  }
  // Tokens over the last 10 s, per weight.
  double usage(const Client& client) const { return client.used_ / client.weight / scale_; }
  // With and without work.
  size_t known() const { return clients_.size(); }

 private:
  void raise(Client& client, double standing);
  void rescale();
  void forget_idle();

  std::unordered_map<std::string, Client> clients_;
  Order active_, queued_;
  std::list<Client*> idle_;              // longest first
  double active_weight_ = 0, used_ = 0;  // of all clients, used_ in tokens of the epoch
  uint64_t next_number_ = 1;
  TimePoint now_{}, epoch_{};
  bool begun_ = false;  // a time is known
  double scale_ = 1;    // tokens of the epoch that one token is now
};

// What a client asks of something that is shared.
struct Claim {
  double weight = 1;
  int64_t demand = 0;
};
// Max-min fairness: the highest level such that a budget holds min(demand, level * weight) of every claim. Infinite where
// it holds all demands.
double fair_level(std::vector<Claim> claims, int64_t budget);

}  // namespace sluice::sched
