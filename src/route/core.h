// The router's state: what it knows about its replicas, who waits for them, connections to them that are free. All of it
// belongs to the one thread that runs the context.
//
// Only the sources of this folder include this, and with it Boost.Asio.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/metrics.h"
#include "route/fair_queue.h"
#include "route/options.h"
#include "route/policy.h"
#include "route/prompt_reader.h"
#include "server/access/guards.h"
#include "server/handover/prefill_peers.h"

namespace sluice::route {

namespace asio = boost::asio;
using asio::ip::tcp;

class Session;

// An answer to a question of the router's own.
struct Fetched {
  int status = 0;  // 0: none came
  std::string body;
};

struct RouteCounters {
  uint64_t requests = 0, retries = 0, broken = 0, refused = 0, gone = 0;
  engine::Histogram delay;  // seconds from a request's last byte to the first byte sent to a replica
};

class Core {
 public:
  Core(const RouteOptions& options, PromptReader reader, std::vector<server::PeerAddress> addresses,
       std::string replica_key);
  ~Core();

  Status listen();
  void start(bool signals);
  void run() { context_.run(); }
  void drain();
  asio::io_context& context() { return context_; }
  int port() const { return endpoint_.port(); }
  std::string url() const;

  const RouteOptions& options() const { return options_; }
  const server::GuardOptions& guards() const { return guards_; }
  std::vector<ReplicaState>& replicas() { return replicas_; }
  const server::PeerAddress& address(size_t index) const { return addresses_[index]; }
  size_t index_of(const ReplicaState& replica) const {
    return static_cast<size_t>(&replica - replicas_.data());
  }
  const PromptReader& reader() const { return reader_; }
  FairQueue& queue() { return queue_; }
  RouteCounters& counters() { return counters_; }
  bool draining() const { return draining_; }
  bool ready() const;
  std::string metrics() const;
  std::string status() const;  // JSON

  // A connection that was used before; false: there is none.
  bool take_idle(size_t replica, tcp::socket& socket);
  void keep_idle(size_t replica, tcp::socket socket);
  asio::awaitable<bool> connect(size_t replica, tcp::socket& socket);
  // GET, with the field lines given. Nothing where it takes too long.
  asio::awaitable<Fetched> fetch(size_t replica, std::string target, std::string fields);
  // What a replica keeps the prefixes of a client with these field lines apart by; nothing where it cannot be had.
  asio::awaitable<std::optional<std::string>> salt_of(size_t replica, std::string fields);
  bool isolated() const { return isolated_; }

  void joined(Session* session) { sessions_.insert(session); }
  void left(Session* session);

 private:
  asio::awaitable<void> accept();
  asio::awaitable<void> watch(size_t replica);
  void note_report(size_t replica, const Fetched& report);
  void end();

  RouteOptions options_;
  server::GuardOptions guards_;
  PromptReader reader_;
  std::vector<server::PeerAddress> addresses_;
  std::string key_line_;  // "authorization: Bearer ..."; empty: none
  std::vector<ReplicaState> replicas_;
  std::vector<int> missed_;  // reports in a row
  FairQueue queue_;
  RouteCounters counters_;
  std::unordered_map<std::string, std::string> salts_;  // by the client's field lines
  bool isolated_ = false, draining_ = false, ended_ = false;
  std::unordered_set<Session*> sessions_;

  // Sessions end with the context at the latest, and use what is above; what is below goes before it.
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  tcp::endpoint endpoint_;
  asio::signal_set signals_{context_};
  asio::steady_timer deadline_{context_};
  std::vector<std::unique_ptr<asio::steady_timer>> pauses_;  // of those that watch replicas
  std::vector<std::vector<tcp::socket>> idle_;               // per replica
};

}  // namespace sluice::route
