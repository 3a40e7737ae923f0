#include "server/core/server.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <future>
#include <map>
#include <new>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/system/memory.h"
#include "server/core/acceptor.h"
#include "server/core/connection_table.h"
#include "server/core/io_threads.h"
#include "server/http/connection.h"
#include "server/observe/notify.h"

namespace sluice::server {

using boost::system::error_code;

namespace {

constexpr Seconds kTick{0.25};       // how often health is looked at
constexpr Seconds kUpkeep{1.0};      // and memory
constexpr Seconds kFarewell{2.0};    // for the last words of requests that are cut off
constexpr Seconds kTrimPause{10.0};  // between two times that memory is given back under load
constexpr int64_t kUnusedIdle = 16 << 20, kUnusedBusy = 256 << 20;  // bytes worth giving back
constexpr int kLargeBlock = 4 << 20;  // bytes that go back to the system when they are freed
constexpr std::chrono::milliseconds kMemoryPause{10};

Clock::duration ticks(Seconds seconds) {
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

// What the server cannot go on without is tried until there is memory for it.
template <class Function>
auto insist(Function function) {
  while (true) {
    try {
      return function();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kMemoryPause);
    }
  }
}

// A weight or a right for a name that nobody has would be ignored for good.
Status check_names(const ServerOptions& options, const KeyRing& keys) {
  const std::map<std::string, double> weights = *parse_key_weights(options.key_weights);
  for (const auto& [name, weight] : weights) {
    if (keys.has_owner(name)) continue;
    return Error{ErrorCode::InvalidArgument,
                 keys.empty() ? fmt::format("--key-weight {}={:g}: there are no keys", name, weight)
                              : fmt::format("--key-weight {}={:g}: no key has this name; there are {}", name,
                                            weight, keys.owners())};
  }
  for (const std::string& name : options.admin_keys) {
    if (keys.has_owner(name)) continue;
    return Error{ErrorCode::InvalidArgument,
                 keys.empty() ? fmt::format("--admin-key {}: there are no keys", name)
                              : fmt::format("--admin-key {}: no key has this name; there are {}", name,
                                            keys.owners())};
  }
  return {};
}

}  // namespace

class Server::Loop {
 public:
  Loop(const ServerOptions& options, KeyRing keys, std::vector<api::Operation> operations)
      : state(options, std::move(keys), std::move(operations), make_assets(embedded_files())),
        threads_(options.http_threads),
        table_(connection_places(options)),
        control_(threads_.first()),
        acceptor_({state, table_, threads_, [this] { note_departure(); }}),
        signals_(control_),
        tick_(control_),
        deadline_(control_) {}

  ~Loop();

  ServerContext state;

  Status listen() { return acceptor_.listen(); }
  void start(bool signals);
  void ready() { notifier_.send("READY=1"); }
  End wait() { return ended_.get_future().get(); }
  void drain() {
    asio::post(control_, [this] { begin_drain(); });
  }
  void end_now() {
    asio::post(control_, [this] { cut(End::Cut); });
  }
  void reload_keys();
  int port() const { return acceptor_.port(); }
  std::string url() const { return acceptor_.url(); }

 private:
  void note_departure();
  void watch_signals();
  void take_signal(int number);
  void tick();
  void look_after();
  void give_back_memory();
  void begin_drain();
  void refuse_new();
  void say_farewell(End end);
  void cut(End end);
  void end_if_idle();
  void announce_end();
  template <class Function>
  void for_each_connection(Function function);
  // Calls a member after a time, unless the timer is set again or cancelled before.
  void set_timer(asio::steady_timer& timer, Seconds delay, std::function<void()> then);

  IoThreads threads_;
  ConnectionTable table_;
  asio::io_context& control_;  // everything below but the connections belongs to its thread
  Acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer tick_, deadline_;
  ServiceNotifier notifier_;
  TimePoint last_watchdog_{}, last_trim_{}, last_upkeep_{};
  uint64_t last_ended_ = 0;
  int collections_due_ = 0;
  bool draining_ = false, refusing_ = false, over_ = false, unhealthy_ = false;
  End end_ = End::Drained;
  std::promise<End> ended_;
  bool started_ = false;
};

void Server::Loop::start(bool signals) {
  // At once: a signal that comes before a thread has run must not end the program.
  if (signals)
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signals_.add(number);
  asio::post(control_, [this, signals] {
    acceptor_.keep_accepting();
    if (signals) watch_signals();
    tick();
  });
  started_ = true;
  threads_.start();
}

// Of any connection's thread.
void Server::Loop::note_departure() {
  try {
    asio::post(control_, [this] { end_if_idle(); });
  } catch (const std::bad_alloc&) {  // look_after() asks again
  }
}

template <class Function>
void Server::Loop::for_each_connection(Function function) {
  for (const ConnectionTable::Handle& handle : insist([&] { return table_.all(); }))
    if (const std::shared_ptr<Connection> connection = handle.lock()) insist([&] { function(*connection); });
}

void Server::Loop::set_timer(asio::steady_timer& timer, Seconds delay, std::function<void()> then) {
  timer.expires_after(ticks(delay));
  insist([&] {
    timer.async_wait([then](const error_code& error) {
      if (!error) then();
    });
  });
}

void Server::Loop::watch_signals() {
  insist([this] {
    signals_.async_wait([this](const error_code& error, int number) {
      if (error) return;
      if (!over_) watch_signals();
      take_signal(number);
    });
  });
}

void Server::Loop::take_signal(int number) {
  if (number == SIGHUP) return reload_keys();
  if (draining_) {
    log_warning("second signal: ending at once");
    return cut(End::Cut);
  }
  begin_drain();
}

void Server::Loop::reload_keys() {
  if (const Status status = state.reload_keys(); !status) {
    log_error("keys were not read again: {}", status.error().message);
  } else {
    log_info("keys read again: {}", state.keys()->size());
  }
}

// Buffers of long requests and answers are freed in pieces that the allocator would keep for good.
void Server::Loop::give_back_memory() {
  if (seconds_since(last_upkeep_) < kUpkeep.count()) return;
  last_upkeep_ = Clock::now();
  const bool busy = state.metrics().requests > 0;
  const uint64_t ended = state.metrics().requests_ended.value();
  // Twice: a request's last buffers may go after it has ended.
  if (std::exchange(last_ended_, ended) != ended) collections_due_ = 2;
  if (!busy && collections_due_ > 0) {
    --collections_due_;
    threads_.run_on_each(return_thread_memory);
    state.run_on_preparation(return_thread_memory);
  }
  if (busy && seconds_since(last_trim_) < kTrimPause.count()) return;
  if (unused_memory() < (busy ? kUnusedBusy : kUnusedIdle)) return;
  return_unused_memory();
  last_trim_ = Clock::now();
}

// Four times a second, or more often where systemd watches. A timer that was due before it was cancelled still calls this.
void Server::Loop::tick() {
  if (over_) return;
  const std::optional<double> interval = notifier_.watchdog_interval();
  set_timer(tick_, interval ? std::min(kTick, Seconds(*interval / 4)) : kTick, [this] { tick(); });
  look_after();
}

// Tells systemd that things go on, and ends what cannot go on.
void Server::Loop::look_after() {
  end_if_idle();
  if (over_) return;
  acceptor_.keep_accepting();
  const HealthReport report = state.health();
  if (!report.healthy && !unhealthy_) log_error("unhealthy: {}", report.reason);
  if (report.healthy && unhealthy_) log_info("healthy again");
  unhealthy_ = !report.healthy;
  if (report.lost && !draining_) {
    end_ = End::EngineLost;
    draining_ = refusing_ = true;
    state.set_draining();
    state.set_refusing();
    say_farewell(End::EngineLost);
    if (over_) return;
  }
  give_back_memory();
  const std::optional<double> interval = notifier_.watchdog_interval();
  if (report.healthy && interval && seconds_since(last_watchdog_) >= *interval / 4) {
    notifier_.send("WATCHDOG=1");
    last_watchdog_ = Clock::now();
  }
}

void Server::Loop::begin_drain() {
  if (std::exchange(draining_, true)) return;
  log_info("draining: {} connections, {} requests", state.metrics().connections.load(),
           state.metrics().requests.load());
  state.set_draining();
  notifier_.send("STOPPING=1");
  set_timer(deadline_, Seconds(state.options().drain_delay), [this] { refuse_new(); });
}

void Server::Loop::refuse_new() {
  if (over_) return;
  refusing_ = true;
  state.set_refusing();
  // Probes are still answered, so that a balancer hears what goes on; who comes for that is not waited for.
  table_.shut();
  for_each_connection([](Connection& connection) { connection.end_soon(); });
  set_timer(deadline_, Seconds(state.options().shutdown_timeout), [this] { say_farewell(End::Cut); });
  end_if_idle();
}

// Requests that still run get an error instead of the rest of their answer.
void Server::Loop::say_farewell(End end) {
  if (over_) return;
  end_ = end;
  acceptor_.close();
  for_each_connection([](Connection& connection) { connection.abort(); });
  set_timer(deadline_, kFarewell, [this, end] { cut(end); });
  end_if_idle();
}

void Server::Loop::cut(End end) {
  if (over_) return;
  draining_ = refusing_ = true;
  state.set_draining();
  state.set_refusing();
  end_ = end;
  for_each_connection([](Connection& connection) { connection.close_now(); });
  announce_end();
}

void Server::Loop::end_if_idle() {
  if (over_ || !refusing_ || table_.awaited() > 0) return;
  for_each_connection([](Connection& connection) { connection.close_now(); });
  announce_end();
}

void Server::Loop::announce_end() {
  over_ = true;
  acceptor_.close();
  error_code ignored;
  signals_.cancel(ignored);
  tick_.cancel();
  deadline_.cancel();
  ended_.set_value(end_);
}

Server::Loop::~Loop() {
  if (!started_) return;
  std::promise<void> cutting;
  asio::post(control_, [&] {
    cut(End::Cut);
    cutting.set_value();
  });
  cutting.get_future().wait();  // no thread is let go while a connection may still be given to it
  threads_.join();
  state.stop_preparation();  // nobody waits for what is still being read
}

Server::Server(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, bool signals,
                                             std::vector<api::Operation> operations) {
  if (Status valid = validate(options); !valid) return valid.error();
  // By itself the allocator takes larger and larger blocks from heaps, and keeps up to 64 MB of each thread's.
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, kLargeBlock);
  Result<KeyRing> keys = KeyRing::make({options.api_keys, options.api_key_file});
  if (!keys) return keys.error();
  if (keys->empty() && !options.api_key_file.empty() && !options.insecure_no_auth)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("key file '{}' holds no key; leave it out, or say --insecure-no-auth, to let "
                             "everybody in",
                             options.api_key_file)};
  if (Status known = check_names(options, *keys); !known) return known.error();
  auto loop = std::make_unique<Loop>(options, std::move(*keys), std::move(operations));
  if (Status listening = loop->listen(); !listening) return listening.error();
  loop->start(signals);
  return std::unique_ptr<Server>(new Server(std::move(loop)));
}

int Server::port() const {
  return loop_->port();
}
std::string Server::url() const {
  return loop_->url();
}
ServerContext& Server::state() {
  return loop_->state;
}
void Server::serve(std::vector<Backend> backends, std::vector<api::AbsentModel> absent) {
  loop_->state.set_models(std::make_shared<const ModelSet>(std::move(backends), std::move(absent)));
  loop_->ready();
}
Server::End Server::wait() {
  return loop_->wait();
}
void Server::drain() {
  loop_->drain();
}
void Server::end_now() {
  loop_->end_now();
}
void Server::reload_keys() {
  loop_->reload_keys();
}

}  // namespace sluice::server
