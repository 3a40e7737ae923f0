// The way of a request through a replica: its place among those of other keys, the choice, and the bytes both ways.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/log.h"
#include "route/response_tracker.h"
#include "route/session.h"
#include "server/core/router.h"
#include "server/http/response.h"

namespace sluice::route {

using boost::system::error_code;

namespace {

// Fields that are for this connection alone, or that the router writes itself. Where a browser's page comes from was judged
// here, and would be compared with another host there.
bool is_dropped(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
       "content-length", "expect", "host", "x-forwarded-for", "origin", "sec-fetch-site", "sec-fetch-mode",
       server::kPrefillField});
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// A request's place in a replica's account.
class Account {
 public:
  Account(ReplicaState& replica, int64_t prefill) : replica_(replica), prefill_(prefill) {
    ++replica_.running;
    count_request(replica_, Clock::now());
    replica_.prefill_tokens += prefill_;
  }
  ~Account() {
    begun();
    --replica_.running;
  }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;
  // The prompt has been computed.
  void begun() { replica_.prefill_tokens -= std::exchange(prefill_, 0); }

 private:
  ReplicaState& replica_;
  int64_t prefill_;
};

class Place {
 public:
  explicit Place(FairQueue& queue) : queue_(queue) {}
  ~Place() { queue_.release(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  FairQueue& queue_;
};

}  // namespace

struct Session::Flow {
  ReplicaState& replica;
  size_t index;
  bool last;             // no other replica is left
  bool refused = false;  // by its replica
  std::string bytes;
  std::shared_ptr<tcp::socket> upstream;
  std::optional<Account>& prefill;  // at the server that prefills for it, until the answer begins
  Account account;
};

std::string Session::key_lines() const {
  std::string out;
  for (const char* name : {"authorization", "x-api-key", "api-key"})
    if (const std::string* value = parser_.head().find(name)) out += fmt::format("{}: {}\r\n", name, *value);
  return out;
}

std::string Session::client_name() const {
  const std::string keys = key_lines();
  return keys.empty() ? peer_ : keys;
}

std::string Session::request_bytes(size_t replica, const ReplicaState* prefill) {
  const server::RequestHead& head = parser_.head();
  const server::PeerAddress& address = core_.address(replica);
  std::string out = fmt::format("{} {} HTTP/1.{}\r\nhost: {}:{}\r\n", head.method, head.target,
                                head.minor_version, address.host, address.port);
  for (const server::HeaderField& field : head.fields)
    if (!is_dropped(field.name)) out += fmt::format("{}: {}\r\n", field.name, field.value);
  const std::string* before = head.find("x-forwarded-for");
  out += fmt::format("x-forwarded-for: {}{}\r\n", before == nullptr ? "" : *before + ", ", peer_);
  if (prefill != nullptr) out += fmt::format("{}: {}\r\n", server::kPrefillField, prefill->url);
  out += fmt::format("connection: {}\r\n", head.minor_version == 0 ? "close" : "keep-alive");
  const std::string& body = parser_.body();
  if (head.method == "POST" || !body.empty()) out += fmt::format("content-length: {}\r\n", body.size());
  return out + "\r\n" + body;
}

// The prompt's blocks as the replicas name them; empty where that is not known.
asio::awaitable<PromptBlocks> Session::read_prompt() {
  const server::RequestHead& head = parser_.head();
  const std::optional<ReadPrompt> prompt = core_.reader().read(head.method, head.path(), parser_.body());
  if (!prompt) co_return PromptBlocks{};
  const std::vector<ReplicaState>& replicas = core_.replicas();
  const auto told = std::find_if(replicas.begin(), replicas.end(),
                                 [](const ReplicaState& r) { return r.healthy && r.block_size > 0; });
  if (told == replicas.end()) co_return PromptBlocks{{}, static_cast<int64_t>(prompt->tokens.size())};
  std::string salt;
  if (core_.isolated()) {
    const std::optional<std::string> found = co_await core_.salt_of(core_.index_of(*told), key_lines());
    if (!found) co_return PromptBlocks{{}, static_cast<int64_t>(prompt->tokens.size())};
    salt = *found;
  }
  co_return blocks_of(*prompt, *told, salt);
}

// False: the client has gone.
asio::awaitable<bool> Session::wait_for_place() {
  bool has_place = false;
  place_.expires_at(TimePoint::max());
  // Whoever gets a place and is gone gives it to the next.
  const auto granted = std::make_shared<bool>(false);
  const uint64_t number = core_.queue().enter(client_name(), [granted, weak = weak_from_this()] {
    *granted = true;
    if (const std::shared_ptr<Session> self = weak.lock()) self->place_.cancel();
  });
  has_place = *granted;
  while (!has_place && client_.is_open() && !gone_) {
    error_code cancelled;
    watch_client(nullptr);
    co_await place_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    has_place = *granted;
  }
  error_code ignored;
  client_.cancel(ignored);
  if (!has_place) core_.queue().leave(number);
  if (has_place && gone_) core_.queue().release();
  co_return has_place && !gone_;
}

asio::awaitable<bool> Session::forward() {
  RouteCounters& counters = core_.counters();
  ++counters.requests;
  const bool admitted = co_await wait_for_place();
  if (!admitted) {
    ++counters.gone;
    co_return false;
  }
  const Place place(core_.queue());
  const PromptBlocks prompt = co_await read_prompt();
  std::vector<const ReplicaState*> tried;
  while (tried.size() < core_.replicas().size()) {
    const Choice choice = choose(core_.replicas(), prompt, tried, Clock::now());
    if (choice.replica == nullptr) break;
    ReplicaState& replica = *choice.replica;
    tried.push_back(&replica);
    const bool last = choose(core_.replicas(), prompt, tried, Clock::now()).replica == nullptr;
    replica.prompt_tokens += static_cast<uint64_t>(prompt.tokens);
    replica.cached_tokens += static_cast<uint64_t>(choice.cached);
    expect(replica, prompt, Clock::now());
    // What the replica has not is computed where it is paired with one that prefills.
    int64_t missing = prompt.tokens - choice.cached;
    std::optional<Account> prefill;
    Choice paired;
    if (replica.role == "decode") paired = choose_prefill(core_.replicas(), prompt, Clock::now());
    if (paired.replica != nullptr) {
      prefill.emplace(*paired.replica, std::exchange(missing, 0));
      expect(*paired.replica, prompt, Clock::now());
    }
    const size_t index = core_.index_of(replica);
    Flow flow{replica,           index, last, false, request_bytes(index, paired.replica), nullptr, prefill,
              {replica, missing}};
    const Outcome outcome = co_await relay(flow);
    error_code ignored;
    client_.cancel(ignored);
    if (outcome == Outcome::Done) co_return true;
    if (gone_) ++counters.gone;
    if (gone_ || !client_.is_open()) co_return false;
    ++replica.failures;
    if (outcome == Outcome::Broken) {
      ++counters.broken;
      cut();
      co_return false;
    }
    ++counters.retries;
  }
  ++counters.refused;
  server::Reply reply = server::error_reply(server::Router::dialect_of(parser_.head().path()),
                                            server::overloaded("no replica can take the request"), "");
  const bool more = co_await put(std::move(reply));
  co_return more;
}

// Notices that the client leaves while nothing is read from it; `upstream` is then closed, which ends the work there.
void Session::watch_client(const std::shared_ptr<tcp::socket>& upstream) {
  client_.async_wait(tcp::socket::wait_read, [weak = weak_from_this(), upstream](const error_code& error) {
    const std::shared_ptr<Session> self = error ? nullptr : weak.lock();
    if (!self) return;
    char byte = 0;
    const ssize_t got = ::recv(self->client_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EAGAIN)) return;  // the next request, which waits
    self->gone_ = true;
    self->place_.cancel();
    error_code ignored;
    if (upstream) upstream->close(ignored);
  });
}

// A kept connection may have been closed by the other side: then a new one is tried.
asio::awaitable<Session::Outcome> Session::relay(Flow& flow) {
  flow.upstream = std::make_shared<tcp::socket>(core_.context());
  while (core_.take_idle(flow.index, *flow.upstream)) {
    const bool sent = co_await send_upstream(flow);
    if (sent) {
      const Outcome outcome = co_await pass_on(flow);
      if (outcome != Outcome::Retry || gone_ || flow.refused) co_return outcome;
    }
    if (gone_) co_return Outcome::Broken;
    flow.upstream = std::make_shared<tcp::socket>(core_.context());
  }
  const bool connected = co_await core_.connect(flow.index, *flow.upstream);
  if (!connected) {
    if (flow.replica.healthy) log_warning("replica {} takes no connections", flow.replica.url);
    flow.replica.healthy = false;
    co_return Outcome::Retry;
  }
  const bool sent = co_await send_upstream(flow);
  if (!sent) co_return gone_ ? Outcome::Broken : Outcome::Retry;
  const Outcome outcome = co_await pass_on(flow);
  co_return outcome;
}

asio::awaitable<bool> Session::send_upstream(Flow& flow) {
  if (received_ != TimePoint{}) core_.counters().delay.record(seconds_since(received_));
  received_ = {};
  error_code error;
  watch_client(flow.upstream);
  co_await asio::async_write(*flow.upstream, asio::buffer(flow.bytes),
                             asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

// The answer's bytes as they come. Nothing is sent to the client before the head is whole.
asio::awaitable<Session::Outcome> Session::pass_on(Flow& flow) {
  using Phase = ResponseTracker::Phase;
  ResponseTracker tracker(parser_.is_head_request());
  std::string bytes(kPiece, '\0'), out;
  bool started = false;
  error_code error;
  while (tracker.phase() == Phase::Head || tracker.phase() == Phase::Body) {
    const size_t got = co_await flow.upstream->async_read_some(
        asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      tracker.finish();
      break;
    }
    const size_t before = tracker.head_bytes();
    const bool in_head = tracker.phase() == Phase::Head;
    const size_t used = tracker.feed(std::string_view(bytes).substr(0, got));
    if (tracker.phase() == Phase::Head || (tracker.phase() == Phase::Failed && in_head)) continue;
    const size_t head = in_head ? tracker.head_bytes() - before : 0;
    flow.refused = in_head && tracker.status() == 503 && !flow.last;
    if (flow.refused) co_return Outcome::Retry;
    out = in_head ? tracker.head() : std::string();
    out.append(bytes, head, used - head);
    flow.account.begun();
    flow.prefill.reset();
    started = true;
    co_await asio::async_write(client_, asio::buffer(out), asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      gone_ = true;
      co_return Outcome::Broken;
    }
  }
  if (tracker.phase() != Phase::Done) co_return started ? Outcome::Broken : Outcome::Retry;
  if (tracker.keep_alive()) {
    core_.keep_idle(flow.index, std::move(*flow.upstream));
  } else {
    closing_ = true;
  }
  co_return Outcome::Done;
}

}  // namespace sluice::route
