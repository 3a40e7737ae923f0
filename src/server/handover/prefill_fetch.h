// Asks a server that prefills for the KV blocks of a prompt, over a connection of its own. Belongs to the one thread that
// runs its executor, as what it calls does.
//
// Only prefill_fetch.cpp and connection*.cpp include this, and with it Boost.Asio.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/handover/kv_wire.h"
#include "server/handover/prefill_peers.h"

namespace sluice::server {

class PrefillFetch : public std::enable_shared_from_this<PrefillFetch> {
 public:
  struct Target {
    PeerAddress address;
    std::string key;     // empty: none
    double timeout = 0;  // seconds without a byte
  };
  // Who takes the blocks, and is told about the end.
  struct Taker {
    std::function<void(std::vector<HandedBlock>)> take;
    std::function<bool()> has_room;
    std::function<void()> wake;
  };
  PrefillFetch(const boost::asio::any_io_executor& executor, Target target, BlockReader reader, Taker taker);

  void start(std::string order);
  // The taker is not called any more.
  void cancel();
  bool over() const { return over_; }
  // Of a fetch that is over: whether all blocks came.
  const Status& status() const { return status_; }

 private:
  using tcp = boost::asio::ip::tcp;

  boost::asio::awaitable<void> run(std::string order);
  boost::asio::awaitable<bool> connect();
  boost::asio::awaitable<Status> read_answer();
  boost::asio::awaitable<bool> wait_for_room();
  void set_deadline();
  Status read_head(std::string& head) const;
  void end(Status status);

  tcp::socket socket_;
  tcp::resolver resolver_;
  boost::asio::steady_timer deadline_, pause_;
  Target target_;
  BlockReader reader_;
  Taker taker_;
  Status status_;
  bool over_ = false, late_ = false, cancelled_ = false;
};

}  // namespace sluice::server
