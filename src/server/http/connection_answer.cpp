// How a connection answers a request that was let in.
#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <new>

#include "api/core/generation.h"
#include "base/log.h"
#include "server/core/builtin_routes.h"
#include "server/http/connection.h"

namespace sluice::server {

namespace {

// Requests that may wait to be read at once; their bodies count in the budget of bytes, too.
constexpr int64_t kMostJobs = 1024;
constexpr int64_t kMostLiveViews = 32;
constexpr std::string_view kEventStream = "text/event-stream";

// Counts one as long as it lives.
class Seat {
 public:
  explicit Seat(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~Seat() { --count_; }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

// Nothing that a request makes go wrong leaves this function.
api::Reply run_safely(const api::Call& call, const PreparePool::Job& job, const ServerOptions& options) {
  try {
    api::Reply reply = call.operation->run(call);
    if (job.stopped() != PreparePool::Stop::TimeLimit) return reply;
    return api::ApiError{408,
                         "timeout_error",
                         "request_timeout",
                         "",
                         fmt::format("reading the request takes more than {:g} s; the limit is "
                                     "--prepare-timeout",
                                     options.prepare_timeout),
                         0};
  } catch (const std::bad_alloc&) {
    return overloaded("there is not enough memory for this request");
  } catch (const std::exception& problem) {
    log_error("request id={} path={} failed: {}", call.context.request_id, call.operation->path,
              problem.what());
    return api::ApiError{500, "server_error", "internal_error", "", "the request failed inside the server",
                         0};
  }
}

}  // namespace

struct Connection::Reading {
  Seat seat;
  std::shared_ptr<const ModelSet> models;
  std::string body, rest;
  api::Call call;
  std::optional<api::Reply> outcome;
  std::atomic<bool> ready{false};  // the outcome is there
};

std::function<void()> Connection::waker() {
  return [weak = weak_from_this(), executor = socket_.get_executor()] {
    asio::post(executor, [weak] {
      if (const std::shared_ptr<Connection> self = weak.lock()) self->wake();
    });
  };
}

ResponseHead Connection::make_head(int status, std::string_view content_type) const {
  ResponseHead head{.status = status, .content_type = std::string(content_type), .length = {}, .fields = {}};
  const bool framed = parser_.phase() == RequestParser::Phase::Done;
  head.minor_version = framed ? parser_.head().minor_version : 1;
  head.close = closing_ || state_.refusing() || half_closed_ || !framed || !parser_.head().keep_alive;
  head.fields.emplace_back("x-request-id", current_.id);
  if (current_.route != nullptr && current_.route->dialect == api::Dialect::Anthropic)
    head.fields.emplace_back("request-id", current_.id);
  if (current_.origin != nullptr) {
    head.fields.emplace_back("access-control-allow-origin", *current_.origin);
    head.fields.emplace_back("access-control-expose-headers", "x-request-id, retry-after");
    head.fields.emplace_back("vary", "origin");
  }
  return head;
}

void Connection::put(Reply reply) {
  ResponseHead head = make_head(reply.status, reply.content_type);
  head.length = reply.body.size();
  for (auto& field : reply.fields) head.fields.push_back(std::move(field));
  closing_ = closing_ || head.close;
  current_.status = reply.status;
  std::string bytes = write_head(head);
  if (!parser_.is_head_request()) bytes += reply.body;
  head_sent_ = true;
  outgoing_ = std::move(bytes);
}

Connection::Awaitable Connection::answer(Admission& admission) {
  const Route& route = *admission.route;
  if (const auto* own = std::get_if<OwnRoute>(&route.target)) {
    if (*own == OwnRoute::Live) {
      co_await stream_live();
    } else if (*own == OwnRoute::LoadModel || *own == OwnRoute::UnloadModel) {
      co_await change_models(*own, admission.rest);
    } else if (*own == OwnRoute::Prefill) {
      co_await hand_over(admission);
    } else {
      const OwnCall call{*own, admission.rest, parser_.head().query(), admission.client};
      put(own_reply(state_, call));
    }
  } else if (const auto* asset = std::get_if<const Asset*>(&route.target)) {
    put(asset_reply(**asset, parser_.head()));
  } else {
    co_await run_operation(admission);
  }
}

// Loads or unloads a model, which goes on without a client that leaves.
Connection::Awaitable Connection::change_models(OwnRoute route, const std::string& name) {
  struct Change {
    Status status;
    std::atomic<bool> ready{false};
  };
  ModelRepository* const repository = state_.repository();
  if (repository == nullptr || state_.refusing()) {
    put(error_reply(api::Dialect::Kserve,
                    overloaded(state_.loaded() ? "models are not loaded and unloaded at the moment"
                                               : "the models are being loaded"),
                    current_.id));
    co_return;
  }
  const auto change = std::make_shared<Change>();
  const ModelRepository::Done done = [change, wake = waker()](Status status) {
    change->status = std::move(status);
    change->ready = true;
    try {
      wake();
    } catch (const std::bad_alloc&) {  // the connection looks by itself
    }
  };
  if (route == OwnRoute::LoadModel) {
    repository->load(name, done);
  } else {
    repository->unload(name, done);
  }
  while (!change->ready) {
    if (lost_ || closed_) co_return;
    if (aborting_) {
      put(error_reply(api::Dialect::Kserve, overloaded("the server is shutting down"), current_.id));
      co_return;
    }
    co_await wait_until(after(kLookAgain));
  }
  put(repository_reply(change->status, current_.id));
}

Connection::Awaitable Connection::run_operation(Admission& admission) {
  const auto* operation = std::get<const api::Operation*>(admission.route->target);
  if (state_.metrics().jobs >= kMostJobs) {
    state_.metrics().troubled(RejectReason::Overload);
    put(error_reply(operation->dialect, overloaded("too many requests are being read"), current_.id));
    co_return;
  }
  const api::RequestContext context{current_.id, admission.client, state_.cache_salt(admission.client),
                                    unix_seconds(), unix_nanoseconds};
  const std::shared_ptr<const ModelSet> models = state_.models();  // until the answer is over
  std::shared_ptr<Reading> reading(
      new Reading{.seat = Seat(state_.metrics().jobs),
                  .models = models,
                  .body = std::move(parser_.body()),
                  .rest = admission.rest,
                  .call = {operation, {}, {}, models->models, state_.options().any_model_name, context},
                  .outcome = {}});
  reading->call.rest = reading->rest;
  reading->call.body = reading->body;
  reading->call.absent = models->absent;
  reading->call.fetcher = state_.fetcher();
  const bool read = co_await read_request(admission, reading);
  if (!read) co_return;
  std::optional<api::Reply> outcome = std::move(reading->outcome);
  reading.reset();
  release_body();
  if (auto* error = std::get_if<api::ApiError>(&*outcome)) {
    put(error_reply(operation->dialect, *error, current_.id));
  } else if (auto* whole = std::get_if<api::Answer>(&*outcome)) {
    put({whole->status, std::move(whole->content_type), std::move(whole->body), {}});
  } else {
    api::EngineJob prepared = std::get<api::EngineJob>(std::move(*outcome));
    outcome.reset();
    const bool ready = co_await wait_for_grammar(prepared);
    if (!ready) co_return;
    if (std::optional<Reply> refused = enter(admission, prepared)) {
      put(*std::move(refused));
      co_return;
    }
    const bool fetched = co_await fetch_prefixes(prepared, models->backend_of(prepared.model));
    if (!fetched) co_return;
    co_await run_exchange(std::move(prepared), *models);
    admission.lease.charge(current_.usage.generated_tokens);
  }
}

// Who asks, until when, and whether that many sequences and tokens are within the client's limits.
std::optional<Reply> Connection::enter(Admission& admission, api::EngineJob& prepared) {
  int sequences = 0;
  int64_t tokens = 0;
  for (engine::Submission& submission : prepared.submissions) {
    sequences += request::sequence_count(submission.request);
    tokens += std::ssize(submission.request.prompt);
    submission.request.weight = state_.weight_of(admission.client);
    if (admission.first_token_within)
      submission.first_token_within = *admission.first_token_within - Seconds(seconds_since(current_.start));
  }
  std::optional<ClientLimits::Refused> refused = admission.lease.extend(sequences, tokens, Clock::now());
  if (!refused) return std::nullopt;
  state_.metrics().troubled(RejectReason::RateLimit);
  return error_reply(current_.route->dialect,
                     {429, "rate_limit_error", "rate_limit_exceeded", "", std::move(refused->message),
                      refused->retry_after_s},
                     current_.id);
}

// Waits until the request is read. False: its client went, or the server has no more time for it and has said so.
asio::awaitable<bool> Connection::read_request(const Admission& admission,
                                               const std::shared_ptr<Reading>& reading) {
  PreparePool& pool = state_.preparation(reading->body);
  const auto work = [reading, &options = state_.options()](PreparePool::Job& job) {
    reading->call.interrupt = &job;
    reading->outcome = run_safely(reading->call, job, options);
    reading->ready = true;
  };
  const auto done = [wake = waker()] {
    try {
      wake();
    } catch (const std::bad_alloc&) {  // the connection looks by itself
    }
  };
  const std::shared_ptr<PreparePool::Job> job = pool.post(admission.client, work, done);
  while (!reading->ready) {
    if (lost_ || closed_ || aborting_) {
      pool.cancel(*job);
      if (aborting_ && !lost_ && !closed_)
        put(error_reply(current_.route->dialect, overloaded("the server is shutting down"), current_.id));
      co_return false;
    }
    co_await wait_until(after(kLookAgain));
  }
  co_return true;
}

// Waits without a thread for the grammar that the job cannot enter the engine without. False: as of read_request().
asio::awaitable<bool> Connection::wait_for_grammar(api::EngineJob& prepared) {
  if (prepared.first == nullptr) co_return true;
  prepared.first->when_settled(waker());
  while (prepared.first->state() == request::Gate::State::Closed) {
    if (lost_ || closed_) co_return false;
    if (aborting_) {
      put(error_reply(current_.route->dialect, overloaded("the server is shutting down"), current_.id));
      co_return false;
    }
    co_await wait_until(after(kLookAgain));
  }
  api::forget_failed_wish(prepared);
  co_return true;
}

Connection::Awaitable Connection::stream_live() {
  const Seat seat(state_.metrics().live_views);
  if (!state_.loaded() || state_.metrics().live_views > kMostLiveViews) {
    put(error_reply(
        current_.route->dialect,
        overloaded(state_.loaded() ? "too many live views are open" : "the model is being loaded"),
        current_.id));
    co_return;
  }
  if (parser_.head().method == "HEAD") {
    put({200, std::string(kEventStream), "", {}});
    co_return;
  }
  closing_ = true;  // its end is the connection's
  ResponseHead head = make_head(200, kEventStream);
  head.fields.emplace_back("cache-control", "no-cache");
  head.fields.emplace_back("x-accel-buffering", "no");
  current_.status = 200;
  const bool chunked = head.minor_version == 1;
  LiveView view(state_);
  std::string bytes = write_head(head), events = view.hello();
  const auto over = [this] { return half_closed_ || lost_ || aborting_ || state_.refusing(); };
  while (!over()) {
    if (chunked) {
      append_chunk(bytes, events);
    } else {
      bytes += events;
    }
    const bool sent = co_await send(bytes);
    if (!sent) co_return;
    bytes.clear();
    const TimePoint next = after(view.interval());
    while (Clock::now() < next && !over()) co_await wait_until(next);
    events = view.next();
  }
  if (chunked) bytes += kLastChunk;
  co_await send(bytes);
}

}  // namespace sluice::server
