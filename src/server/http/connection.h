// One client's connection: requests in, answers out, one after the other. Two coroutines on one thread: one reads what
// comes, the other does everything else and sleeps on a single alarm that every kind of news cuts short.
//
// Expressions with co_await hold no temporaries of class type but awaitables: GCC 12 destroys some of them twice.
//
// Only connection*.cpp, acceptor.cpp and server.cpp include this, and with it Boost.Asio.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "server/access/admission.h"
#include "server/core/connection_table.h"
#include "server/core/server_context.h"
#include "server/handover/kv_wire.h"
#include "server/http/active_request.h"
#include "server/http/http.h"
#include "server/http/response.h"
#include "server/observe/live.h"

namespace sluice::server {

namespace asio = boost::asio;
using asio::ip::tcp;

// What connections use; all of it outlives them.
struct Facilities {
  ServerContext& state;
  ConnectionTable& table;
};

struct Caller {
  uint64_t number = 0;  // of its place in the table
  IpAddress peer;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `socket` belongs to a context that one thread runs. `ended` is called once, on that thread, when the connection is over.
  Connection(tcp::socket socket, Facilities facilities, const Caller& caller, std::function<void()> ended);
  ~Connection();

  // -- any thread

  void start();

  // Closes the connection where it is idle: its place is wanted by another.
  void give_way();
  // Closes the connection when it is idle, or else after the request it is at.
  void end_soon();
  // Ends the request it is at with an error, and the connection.
  void abort();
  // Closes it as it is.
  void close_now();

 private:
  using Awaitable = asio::awaitable<void>;
  // Seconds after which a connection that waits looks by itself: whoever should wake it may have had no memory to do so.
  static constexpr double kLookAgain = 1;
  template <class Function>
  void on_thread(Function function);

  // What is known about the request being served.
  struct Current {
    std::string id, client;
    const Route* route = nullptr;
    const std::string* origin = nullptr;
    TimePoint start{};
    int status = 0;
    engine::Usage usage;
  };
  // A request on the threads that read it.
  struct Reading;

  // connection.cpp
  class Ending;
  void spawn();
  void end_serving(const std::exception_ptr& problem) noexcept;
  void end_input(const std::exception_ptr& problem) noexcept;
  void give_up(const std::exception_ptr& problem) noexcept;
  Awaitable read_input();
  void read_available(boost::system::error_code& error);
  Awaitable serve();
  Awaitable wait_until(TimePoint deadline);
  void wake();
  bool take_input();
  asio::awaitable<bool> send(std::string_view bytes);
  Awaitable linger();
  void close();

  // connection_request.cpp
  asio::awaitable<bool> read_head();
  Awaitable serve_request();
  asio::awaitable<bool> read_body();
  void account_body();
  void release_body();
  void finish_request() noexcept;
  void log_request(double seconds) const;

  // connection_answer.cpp
  Awaitable answer(Admission& admission);
  void put(Reply reply);
  ResponseHead make_head(int status, std::string_view content_type) const;
  Awaitable run_operation(Admission& admission);
  asio::awaitable<bool> read_request(const Admission& admission, const std::shared_ptr<Reading>& reading);
  Awaitable change_models(OwnRoute route, const std::string& name);
  std::optional<Reply> enter(Admission& admission, api::EngineJob& prepared);
  asio::awaitable<bool> wait_for_grammar(api::EngineJob& prepared);
  Awaitable stream_live();
  std::function<void()> waker();

  // connection_handover.cpp
  asio::awaitable<bool> fetch_prefixes(api::EngineJob& prepared, const Backend& backend);
  asio::awaitable<bool> fetch_prefix(const request::Request& request, engine::Engine& engine);
  template <class Over>
  asio::awaitable<bool> wait_for(Over over);
  void note_fetch(PrefillPeers::Peer& peer, const Status& status);
  Awaitable hand_over(const Admission& admission);
  Awaitable stream_blocks(const PrefillOrder& order, engine::Engine& engine, const std::string& client);

  // connection_exchange.cpp
  Awaitable run_exchange(api::EngineJob prepared, const ModelSet& models);
  Awaitable send_part(ActiveRequest& exchange, std::string_view part, bool last);
  Awaitable probe(const ActiveRequest& exchange);
  Awaitable settle(ActiveRequest& exchange);

  tcp::socket socket_;
  Facilities facilities_;
  ServerContext& state_;
  const Caller caller_;
  std::function<void()> on_end_;
  asio::steady_timer alarm_, stall_, room_;
  RequestParser parser_;
  std::string input_;     // read and not parsed yet
  std::string outgoing_;  // the whole answer to this request, where there is one
  Current current_;
  int64_t body_counted_ = 0;  // bytes of this body that count in the budget
  bool woken_ = false;
  bool idle_ = true;          // no request has come that is not answered
  bool served_ = false;       // a request has been answered
  bool half_closed_ = false;  // nothing more will come; the client may still read
  bool lost_ = false;         // the client is gone
  bool stalled_ = false;      // the client does not read
  bool closing_ = false;      // after this request
  bool aborting_ = false;
  bool closed_ = false;
  bool head_sent_ = false;  // of the answer to this request
  bool probed_ = false;
};

}  // namespace sluice::server
