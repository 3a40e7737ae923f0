#include "server/handover/prefill_fetch.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/clock.h"

namespace sluice::server {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kFetchPiece = size_t{256} << 10, kMostHead = size_t{16} << 10, kMostComplaint = 1000;
constexpr std::chrono::milliseconds kRoomPause{2};

Error fetch_failed(std::string message) {
  return {ErrorCode::Unavailable, std::move(message)};
}

}  // namespace

PrefillFetch::PrefillFetch(const asio::any_io_executor& executor, Target target, BlockReader reader,
                           Taker taker)
    : socket_(executor),
      resolver_(executor),
      deadline_(executor),
      pause_(executor),
      target_(std::move(target)),
      reader_(std::move(reader)),
      taker_(std::move(taker)) {}

void PrefillFetch::start(std::string order) {
  asio::co_spawn(socket_.get_executor(), run(std::move(order)),
                 [self = shared_from_this()](const std::exception_ptr& problem) {
                   if (problem) self->end(fetch_failed("there is not enough memory"));
                 });
}

void PrefillFetch::cancel() {
  cancelled_ = true;
  error_code ignored;
  resolver_.cancel();
  socket_.close(ignored);
  deadline_.cancel();
  pause_.cancel();
}

void PrefillFetch::end(Status status) {
  status_ = std::move(status);
  over_ = true;
  error_code ignored;
  deadline_.cancel();
  socket_.close(ignored);
  if (!cancelled_) taker_.wake();
}

void PrefillFetch::set_deadline() {
  deadline_.expires_after(std::chrono::duration_cast<Clock::duration>(Seconds(target_.timeout)));
  deadline_.async_wait([weak = weak_from_this()](const error_code& cancelled) {
    const std::shared_ptr<PrefillFetch> self = cancelled ? nullptr : weak.lock();
    if (!self) return;
    error_code ignored;
    self->late_ = true;
    self->resolver_.cancel();
    self->socket_.close(ignored);
  });
}

asio::awaitable<bool> PrefillFetch::connect() {
  error_code error;
  const auto found = co_await resolver_.async_resolve(target_.address.host, target_.address.port,
                                                      asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_await asio::async_connect(socket_, found, asio::redirect_error(asio::use_awaitable, error));
  if (error || !socket_.is_open()) co_return false;
  socket_.set_option(tcp::no_delay(true), error);
  co_return true;
}

asio::awaitable<void> PrefillFetch::run(std::string order) {
  const std::shared_ptr<PrefillFetch> self = shared_from_this();
  set_deadline();
  const bool connected = co_await connect();
  Status status = fetch_failed("takes no connection");
  if (connected) {
    const std::string head = fmt::format(
        "POST /kv/prefill HTTP/1.0\r\nhost: {}:{}\r\ncontent-type: {}\r\ncontent-length: {}\r\n{}\r\n",
        target_.address.host, target_.address.port, kKvContentType, order.size(),
        target_.key.empty() ? "" : fmt::format("authorization: Bearer {}\r\n", target_.key));
    order.insert(0, head);
    error_code error;
    co_await asio::async_write(socket_, asio::buffer(order),
                               asio::redirect_error(asio::use_awaitable, error));
    status = fetch_failed("closed the connection");
    if (!error) {
      const Status answered = co_await read_answer();
      status = answered;
    }
  }
  if (late_) status = fetch_failed(fmt::format("sent nothing for {:g} s", target_.timeout));
  end(std::move(status));
}

// Cuts the head off once it is whole. The error says what the server answered.
Status PrefillFetch::read_head(std::string& head) const {
  const size_t end = head.find("\r\n\r\n");
  if (end == std::string::npos)
    return head.size() < kMostHead ? Status() : fetch_failed("sent no head of an answer");
  if (head.size() < 12 || !head.starts_with("HTTP/1.") || head.compare(9, 3, "200") != 0) {
    std::string complaint = head.substr(end + 4, kMostComplaint);
    return fetch_failed(fmt::format("answered {}: {}", head.substr(0, head.find('\r')), complaint));
  }
  head.erase(0, end + 4);
  return {};
}

asio::awaitable<bool> PrefillFetch::wait_for_room() {
  while (!taker_.has_room()) {
    error_code ignored;
    pause_.expires_after(kRoomPause);
    co_await pause_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (cancelled_) co_return false;
    set_deadline();  // it is we who are late
  }
  co_return true;
}

asio::awaitable<Status> PrefillFetch::read_answer() {
  std::string bytes(kFetchPiece, '\0'), head;
  std::vector<HandedBlock> blocks;
  bool in_body = false;
  while (!reader_.ended()) {
    error_code error;
    set_deadline();
    const size_t got = co_await socket_.async_read_some(asio::buffer(bytes),
                                                        asio::redirect_error(asio::use_awaitable, error));
    if (cancelled_) co_return fetch_failed("is not waited for");
    if (error) co_return fetch_failed("ended its answer before the last block");
    std::string_view fresh = std::string_view(bytes).substr(0, got);
    if (!in_body) {
      head.append(fresh);
      in_body = head.find("\r\n\r\n") != std::string::npos;
      const Status sound = read_head(head);
      if (!sound) co_return sound;
      if (!in_body) continue;
      fresh = head;
    }
    const Status sound = reader_.feed(fresh, blocks);
    if (!blocks.empty()) taker_.take(std::exchange(blocks, {}));
    if (!sound) co_return sound;
    const bool goes_on = co_await wait_for_room();
    if (!goes_on) co_return fetch_failed("is not waited for");
  }
  co_return Status();
}

}  // namespace sluice::server
