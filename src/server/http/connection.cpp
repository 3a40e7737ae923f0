#include "server/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <new>

#include "base/log.h"
#include "base/system/memory_reserve.h"

namespace sluice::server {

using boost::system::error_code;

namespace {

// Bytes that are read ahead of the parser; what comes after them stays with the kernel.
constexpr size_t kInputBytes = size_t{64} << 10;
constexpr size_t kReadBytes = size_t{16} << 10;
// What the kernel keeps for a slow reader. Tokens need little; a reader that stalls is to be noticed.
constexpr int kSendBytes = 128 << 10;
// After an answer to a request whose body was not read: how long and how much is read and thrown away, so that the
// client gets to see the answer instead of a reset.
constexpr Seconds kLinger{2.0};
constexpr size_t kLingerBytes = size_t{16} << 20;

constexpr std::string_view kNoMemoryReply =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\n"
    "content-length: 129\r\nconnection: close\r\n\r\n"
    R"({"error":{"message":"there is not enough memory","type":"server_error","param":null,"code":"server_is_overloaded"}})"
    "              ";
static_assert(kNoMemoryReply.size() - kNoMemoryReply.find("{\"error\"") == 129);

bool not_now(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

HttpLimits limits_of(const ServerOptions& options) {
  HttpLimits limits;
  limits.body = static_cast<size_t>(options.max_body);
  return limits;
}

}  // namespace

Connection::Connection(tcp::socket socket, Facilities facilities, const Caller& caller,
                       std::function<void()> ended)
    : socket_(std::move(socket)),
      facilities_(facilities),
      state_(facilities.state),
      caller_(caller),
      on_end_(std::move(ended)),
      alarm_(socket_.get_executor()),
      stall_(socket_.get_executor()),
      room_(socket_.get_executor()),
      parser_(limits_of(state_.options())) {
  error_code error;
  socket_.non_blocking(true, error);
  socket_.set_option(tcp::no_delay(true), error);
  socket_.set_option(tcp::socket::send_buffer_size(kSendBytes), error);
}

Connection::~Connection() = default;

template <class Function>
void Connection::on_thread(Function function) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), function] { function(*self); });
}

void Connection::give_way() {
  on_thread([](Connection& self) {
    if (!self.idle_) return;
    self.close();
    self.wake();
  });
}

void Connection::end_soon() {
  on_thread([](Connection& self) {
    self.closing_ = true;
    self.wake();
  });
}

void Connection::abort() {
  on_thread([](Connection& self) {
    self.closing_ = self.aborting_ = true;
    self.wake();
  });
}

void Connection::close_now() {
  on_thread([](Connection& self) {
    self.lost_ = self.aborting_ = true;
    self.close();
    self.wake();
  });
}

void Connection::start() {
  on_thread([](Connection& self) { self.spawn(); });
}

// Ends the connection for a problem of ours. A lack of memory is told where nothing of the answer is out.
void Connection::give_up(const std::exception_ptr& problem) noexcept {
  if (!problem) return;
  try {
    std::rethrow_exception(problem);
  } catch (const std::bad_alloc&) {
    const bool asked = !current_.id.empty() && current_.status == 0;
    error_code ignored;
    if (asked && !closed_ && !lost_) socket_.write_some(asio::buffer(kNoMemoryReply), ignored);
    if (asked) current_.status = 503;
  } catch (const std::exception& error) {
    log_error("connection id={} ended by an error: {}", current_.id, error.what());
  }
  close();
}

// Calls a member when a coroutine is over, however that comes about: by its end, by an exception, or because it is
// destroyed, as Boost.Asio does, telling nobody, with one that it has no memory to suspend.
class Connection::Ending {
 public:
  using Member = void (Connection::*)(const std::exception_ptr&) noexcept;
  Ending(std::shared_ptr<Connection> self, Member member) : self_(std::move(self)), member_(member) {}
  Ending(Ending&& other) noexcept = default;
  Ending& operator=(Ending&&) = delete;
  ~Ending() {
    if (self_) (*this)(std::make_exception_ptr(std::bad_alloc()));
  }
  void operator()(const std::exception_ptr& problem) noexcept {
    const std::shared_ptr<Connection> self = std::move(self_);
    (self.get()->*member_)(problem);
  }

 private:
  std::shared_ptr<Connection> self_;
  Member member_;
};

void Connection::end_serving(const std::exception_ptr& problem) noexcept {
  give_up(problem);
  if (problem) lost_ = true;
  finish_request();
  close();
  on_end_();
}

void Connection::end_input(const std::exception_ptr& problem) noexcept {
  give_up(problem);
  if (problem) lost_ = true;
  wake();
}

void Connection::spawn() {
  try {
    Ending serving(shared_from_this(), &Connection::end_serving);
    asio::co_spawn(socket_.get_executor(), serve(), std::move(serving));
    Ending reading(shared_from_this(), &Connection::end_input);
    asio::co_spawn(socket_.get_executor(), read_input(), std::move(reading));
  } catch (const std::bad_alloc&) {  // those that did not begin have ended
  }
}

void Connection::wake() {
  woken_ = true;
  alarm_.cancel();
}

Connection::Awaitable Connection::wait_until(TimePoint deadline) {
  if (!woken_) {
    error_code ignored;
    alarm_.expires_at(deadline);
    co_await alarm_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  woken_ = false;
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  error_code ignored;
  socket_.close(ignored);
  room_.cancel();
  stall_.cancel();
}

void Connection::read_available(error_code& error) {
  std::array<char, kReadBytes> bytes;
  const size_t got = socket_.read_some(asio::buffer(bytes), error);
  if (!error) input_.append(bytes.data(), got);
}

Connection::Awaitable Connection::read_input() {
  error_code error;
  while (!closed_) {
    if (input_.size() >= kInputBytes) {
      room_.expires_at(TimePoint::max());
      co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    co_await socket_.async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (closed_) co_return;
    if (!error) read_available(error);
    if (not_now(error)) continue;
    half_closed_ = error == asio::error::eof;
    lost_ |= error && !half_closed_;
    wake();
    if (error) break;
  }
  if (lost_ || closed_) co_return;
  // The client has sent all it will send. If it is gone, what we send is answered by a reset.
  co_await socket_.async_wait(tcp::socket::wait_error, asio::redirect_error(asio::use_awaitable, error));
  lost_ = true;
  wake();
}

// Gives what was read to the parser; true where it took something.
bool Connection::take_input() {
  if (input_.empty()) return false;
  const size_t used = parser_.feed(input_);
  input_.erase(0, used);
  if (input_.size() < kInputBytes) room_.cancel();
  return used > 0;
}

asio::awaitable<bool> Connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    error_code error;
    if (lost_ || stalled_ || closed_) co_return false;
    const size_t sent = socket_.write_some(asio::buffer(bytes), error);
    if (!error) {
      bytes.remove_prefix(sent);
      continue;
    }
    if (!not_now(error)) {
      lost_ = true;
      co_return false;
    }
    stall_.expires_at(after(state_.options().write_timeout));
    stall_.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (cancelled) return;
      self->stalled_ = true;
      self->close();
    });
    co_await socket_.async_wait(tcp::socket::wait_write, asio::redirect_error(asio::use_awaitable, error));
    stall_.cancel();
  }
  co_return true;
}

Connection::Awaitable Connection::serve() {
  while (!closed_ && !lost_) {
    head_sent_ = probed_ = false;
    current_ = {};
    const bool complete = co_await read_head();
    if (complete && !MemoryReserve::regain()) throw std::bad_alloc();
    if (complete) co_await serve_request();
    const std::string last = std::exchange(outgoing_, {});
    co_await send(last);
    if (!complete) co_return;
    const bool over = closing_ || lost_ || stalled_ || parser_.phase() != RequestParser::Phase::Done;
    if (!over) facilities_.table.idle(caller_.number);
    finish_request();
    if (over) break;
    parser_.reset();
    served_ = idle_ = true;
  }
  const bool unread = parser_.phase() != RequestParser::Phase::Done || !input_.empty();
  if (unread && !closed_ && !lost_ && !stalled_ && !aborting_) co_await linger();
}

// True where there is a head or a fault to answer; false: the connection is over.
asio::awaitable<bool> Connection::read_head() {
  const ServerOptions& options = state_.options();
  // Who has not asked for anything yet has no more time than for a header.
  TimePoint deadline = after(served_ ? options.idle_timeout : options.header_timeout);
  bool begun = false;
  while (true) {
    take_input();
    if (parser_.phase() != RequestParser::Phase::Head) break;
    if (lost_ || half_closed_ || closed_) co_return false;
    if (closing_ && !parser_.started()) co_return false;
    if (!begun && parser_.started()) {
      begun = true;
      deadline = after(options.header_timeout);
    }
    if (Clock::now() >= deadline) {
      if (!begun) co_return false;
      state_.metrics().troubled(RejectReason::Slow);
      current_.start = Clock::now();
      current_.id = request_id_of(nullptr);
      closing_ = true;
      state_.metrics().requests += 1;
      put(fault_reply({408, "the header took too long to come"}, current_.id));
      co_return false;
    }
    co_await wait_until(deadline);
  }
  idle_ = false;
  facilities_.table.busy(caller_.number);
  current_.start = Clock::now();
  current_.id = request_id_of(parser_.phase() == RequestParser::Phase::Failed ? nullptr : &parser_.head());
  state_.metrics().requests += 1;  // a request without an id is not counted, nor taken off again
  co_return true;
}

Connection::Awaitable Connection::serve_request() {
  if (parser_.phase() == RequestParser::Phase::Failed) {
    state_.metrics().troubled(RejectReason::Framing);
    put(fault_reply(parser_.fault(), current_.id));
    co_return;
  }
  const ClientInfo visitor{current_.id, origin_address(state_.proxies(), caller_.peer, parser_.head())};
  current_.client = client_of(std::nullopt, visitor.address);
  std::variant<Admission, Reply> judged = authorize(state_, parser_.head(), visitor);
  const Match match = state_.router().match(parser_.head().method, parser_.head().path());
  current_.route = match.route;
  if (auto* refusal = std::get_if<Reply>(&judged)) {
    put(std::move(*refusal));
    co_return;
  }
  auto& admission = std::get<Admission>(judged);
  current_.client = admission.client;
  current_.origin = admission.origin.empty() ? nullptr : &admission.origin;
  const bool complete = co_await read_body();
  if (complete) co_await answer(admission);
  current_.origin = nullptr;
}

void Connection::account_body() {
  const auto size = static_cast<int64_t>(parser_.body().size());
  state_.metrics().body_bytes += size - body_counted_;
  body_counted_ = size;
}

void Connection::release_body() {
  state_.metrics().body_bytes -= std::exchange(body_counted_, 0);
}

// False: it did not come, and the client was told why where it is there.
asio::awaitable<bool> Connection::read_body() {
  const ServerOptions& options = state_.options();
  if (parser_.phase() == RequestParser::Phase::Body && parser_.head().expects_continue && input_.empty()) {
    const bool sent = co_await send(kContinue);
    if (!sent) co_return false;
  }
  const TimePoint start = Clock::now();
  while (parser_.phase() == RequestParser::Phase::Body) {
    while (parser_.phase() == RequestParser::Phase::Body && take_input()) account_body();
    if (parser_.phase() != RequestParser::Phase::Body) break;
    if (lost_ || half_closed_ || closed_) co_return false;
    const bool full = state_.metrics().body_bytes > options.body_budget;
    const auto due = static_cast<double>(parser_.body().size()) / options.body_rate + options.body_grace;
    const bool slow = seconds_since(start) > due;
    if (full || slow) {
      state_.metrics().troubled(full ? RejectReason::Overload : RejectReason::Slow);
      Reply reply = full ? error_reply(current_.route->dialect, overloaded("too many bodies are being read"),
                                       current_.id)
                         : fault_reply({408, "the body comes too slowly"}, current_.id);
      put(std::move(reply));
      co_return false;
    }
    co_await wait_until(start + std::chrono::duration_cast<Clock::duration>(Seconds(due + 0.01)));
  }
  if (parser_.phase() == RequestParser::Phase::Failed) {
    state_.metrics().troubled(RejectReason::Framing);
    put(fault_reply(parser_.fault(), current_.id));
    co_return false;
  }
  co_return true;
}

// Once a request, when nothing more will be done for it.
void Connection::finish_request() noexcept {
  release_body();
  if (current_.id.empty()) return;
  state_.metrics().requests -= 1;
  if (stalled_) state_.metrics().troubled(RejectReason::Stalled);
  if ((lost_ || stalled_) && current_.status == 0) current_.status = 499;
  if (current_.status == 499 && !stalled_) state_.metrics().troubled(RejectReason::Disconnected);
  const double seconds = seconds_since(current_.start);
  state_.metrics().answered(state_.router().index_of(current_.route), current_.status, seconds);
  const AccessLog wanted = state_.options().access_log;
  const bool polled = current_.route != nullptr && current_.route->polled();
  if (wanted == AccessLog::All || (wanted == AccessLog::Unpolled && !polled)) {
    try {
      log_request(seconds);
    } catch (const std::bad_alloc&) {  // the line is lost
    }
  }
  current_ = {};
}

void Connection::log_request(double seconds) const {
  const engine::Usage& usage = current_.usage;
  log_message(LogLevel::Info, "request",
              {{"id", current_.id},
               {"client", current_.client.empty() ? "-" : current_.client},
               {"route", current_.route == nullptr ? "-" : current_.route->path},
               {"status", int64_t{current_.status}},
               {"ms", seconds * 1e3},
               {"prompt", int64_t{usage.prompt_tokens}},
               {"cached", int64_t{usage.cached_tokens}},
               {"generated", int64_t{usage.generated_tokens}}});
}

// Lets the client read the answer to a request of which it may still be sending the rest.
Connection::Awaitable Connection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  const TimePoint deadline = after(kLinger.count());
  size_t thrown_away = 0;
  while (!half_closed_ && !lost_ && !closed_ && thrown_away < kLingerBytes && Clock::now() < deadline) {
    thrown_away += input_.size();
    input_.clear();
    room_.cancel();
    co_await wait_until(deadline);
  }
}

}  // namespace sluice::server
