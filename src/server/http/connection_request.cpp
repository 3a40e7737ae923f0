// One request of a connection: its head and body are read, it is judged, and it is accounted for when it is over.
#include <chrono>
#include <new>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/http/connection.h"

namespace sluice::server {

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
  state_.metrics().requests_ended.add();
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

}  // namespace sluice::server
