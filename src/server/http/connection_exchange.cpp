// How a connection passes on what the engine answers.
#include <algorithm>
#include <string>
#include <utility>

#include "server/http/connection.h"

namespace sluice::server {

namespace {

constexpr Seconds kSettle{2.0};  // for the engine to end what nobody waits for

}  // namespace

// Sends a piece of a streamed answer, with the head before the first.
Connection::Awaitable Connection::send_part(ActiveRequest& exchange, std::string_view part, bool last) {
  std::string bytes;
  if (!head_sent_) {
    ResponseHead head = make_head(200, exchange.content_type());
    head.fields.emplace_back("cache-control", "no-cache");
    head.fields.emplace_back("x-accel-buffering", "no");
    closing_ = closing_ || head.close || head.minor_version == 0;
    bytes = write_head(head);
    exchange.head_sent();
    head_sent_ = true;
    current_.status = 200;
  }
  if (parser_.head().minor_version == 0) {
    bytes += part;
  } else {
    append_chunk(bytes, part);
    if (last) bytes += kLastChunk;
  }
  co_await send(bytes);
}

// The client has ended its side. Whether it still reads is seen by what our next bytes meet.
Connection::Awaitable Connection::probe(const ActiveRequest& exchange) {
  probed_ = true;
  const bool old = parser_.head().minor_version == 0;
  if (!head_sent_ && old) lost_ = true;
  std::string bytes;
  if (!head_sent_) bytes = kContinue;
  if (head_sent_ && !old) append_chunk(bytes, exchange.ping());
  co_await send(bytes);
}

Connection::Awaitable Connection::run_exchange(api::EngineJob prepared, const ModelSet& models) {
  const double ping = state_.options().ping_interval, limit = state_.options().request_timeout;
  for (engine::Submission& submission : prepared.submissions)
    if (limit > 0 && !submission.time_limit) submission.time_limit = Seconds(limit);
  engine::Engine& engine = *models.backend_of(prepared.model).engine;
  ActiveRequest exchange(std::move(prepared), engine, waker(),
                         {state_.metrics().answer_bytes, state_.options().answer_budget});
  const api::Dialect dialect = current_.route->dialect;
  if (const std::optional<api::ApiError> refused = exchange.start()) {
    if (refused->status == 503) state_.metrics().troubled(RejectReason::Overload);
    put(error_reply(dialect, *refused, current_.id));
    co_return;
  }
  std::string out;
  TimePoint next_ping = after(ping);
  while (true) {
    exchange.pump(out);
    if (aborting_ && !exchange.done()) exchange.fail(overloaded("the server is shutting down"), out);
    // An answer that is complete is sent to its end, however many pieces it has.
    const bool over = exchange.done() ? !exchange.has_more() : aborting_;
    current_.usage = exchange.usage();
    if (lost_ || stalled_ || closed_) break;
    if (!head_sent_ && exchange.error() != nullptr) {
      if (exchange.error()->status == 503) state_.metrics().troubled(RejectReason::Overload);
      put(error_reply(dialect, *exchange.error(), current_.id));
      co_return;
    }
    if (!exchange.stream() && over && !head_sent_) {
      put({200, std::string(exchange.content_type()), std::move(out), {}});
      co_return;
    }
    if (over || !out.empty()) {
      const std::string part = std::exchange(out, {});
      co_await send_part(exchange, part, over);
      next_ping = after(ping);
      if (over) break;
      continue;
    }
    if (half_closed_ && !probed_) {
      co_await probe(exchange);
      continue;
    }
    co_await wait_until(std::min(next_ping, after(kLookAgain)));
    if (Clock::now() < next_ping) continue;
    if (exchange.stream() && !exchange.ping().empty()) co_await send_part(exchange, exchange.ping(), false);
    next_ping = after(ping);
  }
  if (!lost_ && !stalled_) co_return;
  current_.status = 499;
  co_await settle(exchange);
}

// The client is gone. What its request used is known when the engine has ended it, with the step that runs.
Connection::Awaitable Connection::settle(ActiveRequest& exchange) {
  close();
  exchange.cancel();
  const TimePoint deadline = after(kSettle.count());
  std::string unsent;
  while (!exchange.settled() && !aborting_ && Clock::now() < deadline) {
    co_await wait_until(deadline);
    exchange.pump(unsent);
    unsent.clear();
  }
  current_.usage = exchange.usage();
}

}  // namespace sluice::server
