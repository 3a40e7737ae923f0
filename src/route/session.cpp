#include "route/session.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/log.h"
#include "server/core/router.h"
#include "server/http/response.h"

namespace sluice::route {

using boost::system::error_code;

namespace {

server::HttpLimits limits_of(const RouteOptions& options) {
  server::HttpLimits limits;
  limits.body = static_cast<size_t>(options.max_body);
  return limits;
}

}  // namespace

Session::Session(tcp::socket socket, Core& core)
    : client_(std::move(socket)),
      core_(core),
      deadline_(client_.get_executor()),
      place_(client_.get_executor()),
      parser_(limits_of(core.options())) {
  error_code error;
  client_.set_option(tcp::no_delay(true), error);
  const tcp::endpoint peer = client_.remote_endpoint(error);
  if (!error) peer_ = peer.address().to_string();
  core_.joined(this);
}

Session::~Session() {
  core_.left(this);
}

void Session::start() {
  asio::co_spawn(client_.get_executor(), serve(),
                 [self = shared_from_this()](const std::exception_ptr& problem) {
                   if (!problem) return;
                   log_error("a connection of {} ended by an error", self->peer_);
                   self->cut();
                 });
}

void Session::end_soon() {
  closing_ = true;
  error_code ignored;
  if (idle_) client_.close(ignored);
}

// Ends the connection so that nobody takes what was sent for a whole answer.
void Session::cut() {
  error_code ignored;
  client_.set_option(tcp::socket::linger(true, 0), ignored);
  client_.close(ignored);
}

void Session::set_deadline(double seconds) {
  deadline_.expires_after(std::chrono::duration_cast<Clock::duration>(Seconds(seconds)));
  deadline_.async_wait([weak = weak_from_this()](const error_code& cancelled) {
    const std::shared_ptr<Session> self = cancelled ? nullptr : weak.lock();
    error_code ignored;
    if (self) self->client_.close(ignored);
  });
}

asio::awaitable<void> Session::serve() {
  while (client_.is_open()) {
    const bool complete = co_await read_request();
    if (!complete) co_return;
    const bool more = co_await answer();
    idle_ = true;
    if (!more || closing_ || !parser_.head().keep_alive) co_return;
    parser_.reset();
  }
}

asio::awaitable<bool> Session::read_request() {
  using Phase = server::RequestParser::Phase;
  error_code error;
  bool told = false, begun = false;
  std::string bytes(kPiece, '\0');
  set_deadline(core_.options().idle_timeout);
  while (true) {
    while (!input_.empty() && parser_.phase() < Phase::Done) {
      const size_t used = parser_.feed(input_);
      input_.erase(0, used);
      if (used == 0) break;
    }
    if (parser_.phase() >= Phase::Done) break;
    if (parser_.started() && !std::exchange(begun, true)) {
      idle_ = false;
      set_deadline(core_.options().header_timeout);
    }
    if (parser_.phase() == Phase::Body && parser_.head().expects_continue && !std::exchange(told, true))
      co_await asio::async_write(client_, asio::buffer(server::kContinue),
                                 asio::redirect_error(asio::use_awaitable, error));
    const size_t got = co_await client_.async_read_some(asio::buffer(bytes),
                                                        asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
    // A long body has its time as long as it comes.
    if (parser_.phase() == Phase::Body) set_deadline(core_.options().header_timeout);
    input_.append(bytes, 0, got);
  }
  deadline_.cancel();
  idle_ = false;
  received_ = Clock::now();
  if (parser_.phase() == Phase::Done) co_return true;
  server::Reply reply = server::fault_reply(parser_.fault(), "");
  closing_ = true;
  co_await put(std::move(reply));
  co_return false;
}

asio::awaitable<bool> Session::put(server::Reply reply) {
  server::ResponseHead head{
      .status = reply.status, .content_type = reply.content_type, .length = {}, .fields = {}};
  head.length = reply.body.size();
  head.close =
      closing_ || parser_.phase() != server::RequestParser::Phase::Done || !parser_.head().keep_alive;
  for (auto& field : reply.fields) head.fields.push_back(std::move(field));
  std::string bytes = server::write_head(head);
  if (!parser_.is_head_request()) bytes += reply.body;
  error_code error;
  co_await asio::async_write(client_, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
  co_return !error && !head.close;
}

// What the router answers by itself.
std::optional<server::Reply> Session::own_reply() const {
  const server::RequestHead& head = parser_.head();
  const api::Dialect dialect = server::Router::dialect_of(head.path());
  const auto refuse = [&](std::string code, std::string message) {
    return server::error_reply(dialect, {403, "permission_error", std::move(code), "", std::move(message), 0},
                               "");
  };
  const auto word = [](int status, std::string_view text) {
    return server::Reply{status, "application/json", fmt::format("{{\"status\":\"{}\"}}", text), {}};
  };
  if (!head.host.empty() && !server::host_allowed(core_.guards(), head.host, server::Keys::None))
    return refuse("host_not_allowed",
                  "this router does not answer to the name in Host; --allowed-host adds names");
  if (server::judge_origin(core_.guards(), head) == server::Origin::Foreign)
    return refuse("origin_not_allowed", "pages of other sites may not call this router");
  if (head.method != "GET" && head.method != "HEAD") return std::nullopt;
  const std::string_view path = head.path();
  if (path == "/health" || path == "/health/live" || path == "/v2/health/live") return word(200, "ok");
  if (path == "/ready" || path == "/v2/health/ready")
    return core_.ready() ? word(200, "ready") : word(503, core_.draining() ? "draining" : "no replica");
  if (path == "/metrics")
    return server::Reply{200, "text/plain; version=0.0.4; charset=utf-8", core_.metrics(), {}};
  if (path == "/replicas") return server::Reply{200, "application/json", core_.status(), {}};
  return std::nullopt;
}

asio::awaitable<bool> Session::answer() {
  std::optional<server::Reply> own = own_reply();
  if (own) {
    const bool more = co_await put(std::move(*own));
    co_return more;
  }
  const bool more = co_await forward();
  co_return more;
}

}  // namespace sluice::route
