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
