// Which rank has ended or hangs. MPI tells nothing of a process that is stopped or of a machine that is gone: every rank has a
// TCP connection to rank 0 beside it, on which a thread of each side sends a byte now and then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sluice::dist {

// Where rank 0 waits for the others; plain bytes, which it broadcasts.
struct HeartbeatAddress {
  uint64_t token = 0;  // who does not know it is a stranger
  uint16_t port = 0;
  char hosts[8][48] = {};  // numbers, "" behind the last
};

struct HeartbeatTiming {
  Clock::duration silence = std::chrono::seconds(1);  // a rank that was not heard of for so long is lost
  Clock::duration interval() const { return silence / 8; }
};

class Heartbeat {
 public:
  static Result<std::unique_ptr<Heartbeat>> lead(int ranks, HeartbeatTiming timing);
  // Connects to rank 0. The error is that none of its addresses answers.
  static Result<std::unique_ptr<Heartbeat>> follow(int rank, const HeartbeatAddress& leader,
                                                   HeartbeatTiming timing);
  // Takes leave: the others do not count this rank as lost.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Of the rank that leads.
  const HeartbeatAddress& address() const { return address_; }

  struct Lost {
    int rank;
    std::string how;  // "has ended"
  };
  // Thread-safe and cheap. The first rank that was lost: rank 0 hears of all, the others of rank 0.
  std::optional<Lost> lost() const;

 private:
  struct Link {
    int socket = -1;
    int rank = -1;  // not known yet
    TimePoint heard{};
    std::string hello;  // what came of it
  };

  Heartbeat(int awaited, HeartbeatTiming timing) : awaited_(awaited), timing_(timing) {}
  Status open_listener();
  void start();
  void run();
  void accept_link();
  void hear(Link& link);
  void greet(Link& link, std::string_view bytes);
  void lose(const Link& link, int how);
  void beat(TimePoint now);
  void leave();

  int awaited_;  // ranks that have not come yet
  HeartbeatTiming timing_;
  HeartbeatAddress address_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // a pipe; closed when the thread is to end
  std::vector<Link> links_;
  std::atomic<int> lost_rank_ = -1;
  std::atomic<int> how_ = 0;
  std::thread thread_;
};

}  // namespace sluice::dist
