#include "route/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "route/response_tracker.h"
#include "route/session.h"
#include "server/observe/metrics_text.h"
#include "server/observe/prometheus.h"

namespace sluice::route {

using boost::system::error_code;

namespace {

constexpr size_t kMostIdle = 256;  // connections kept for one replica
constexpr int kMostMissed = 2;     // reports before a replica counts as gone
constexpr size_t kMostSalts = 16384;
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr size_t kReportPiece = size_t{64} << 10, kMostReport = size_t{64} << 20;

Clock::duration span_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

// 16 digits each.
std::unordered_set<uint64_t> parse_keys(std::string_view text) {
  std::unordered_set<uint64_t> out;
  out.reserve(text.size() / 16);
  for (; text.size() >= 16; text.remove_prefix(16)) {
    uint64_t key = 0;
    std::from_chars(text.data(), text.data() + 16, key, 16);
    out.insert(key);
  }
  return out;
}

// Of the first model, which is the one that requests mean where they name none.
void read_model(const json::object& model, ReplicaState& replica) {
  const auto text = [&](const char* name) {
    const json::value* value = model.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  const auto number = [&](const char* name) {
    const Result<std::optional<int64_t>> value = get_int(model, name);
    return value ? value->value_or(0) : 0;
  };
  replica.model = text("id");
  replica.kv_model = text("kv_model");
  replica.block_size = static_cast<int>(std::clamp<int64_t>(number("block_size"), 0, 1 << 20));
  replica.waiting = number("waiting");
  if (!model.contains("keys")) return;
  replica.version = static_cast<uint64_t>(number("version"));
  replica.keys = parse_keys(text("keys"));
}

}  // namespace

Core::Core(const RouteOptions& options, PromptReader reader, std::vector<server::PeerAddress> addresses,
           std::string replica_key)
    : options_(options),
      guards_{server::is_loopback(options.host), options.allowed_hosts, {}, ""},
      reader_(std::move(reader)),
      addresses_(std::move(addresses)),
      key_line_(replica_key.empty() ? "" : fmt::format("authorization: Bearer {}\r\n", replica_key)),
      replicas_(addresses_.size()),
      missed_(addresses_.size()),
      queue_(int64_t{options.max_running} * static_cast<int64_t>(addresses_.size())) {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    replicas_[i].url = fmt::format("http://{}:{}", addresses_[i].host, addresses_[i].port);
    pauses_.push_back(std::make_unique<asio::steady_timer>(context_));
    idle_.emplace_back();
  }
}

Core::~Core() = default;

Status Core::listen() {
  const auto failed = [&](const error_code& error) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("cannot listen on {}:{}: {}", options_.host, options_.port, error.message())};
  };
  error_code error;
  const auto address =
      asio::ip::make_address(options_.host == "localhost" ? "127.0.0.1" : options_.host, error);
  if (error)
    return Error{ErrorCode::InvalidArgument, fmt::format("--host '{}' is no IP address", options_.host)};
  const tcp::endpoint wanted(address, static_cast<uint16_t>(options_.port));
  acceptor_.open(wanted.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(wanted, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return failed(error);
  endpoint_ = acceptor_.local_endpoint(error);
  return {};
}

std::string Core::url() const {
  return endpoint_.address().is_v6() ? fmt::format("http://[{}]:{}", endpoint_.address().to_string(), port())
                                     : fmt::format("http://{}:{}", endpoint_.address().to_string(), port());
}

void Core::start(bool signals) {
  if (signals) {
    for (const int number : {SIGTERM, SIGINT}) signals_.add(number);
    signals_.async_wait([this](const error_code& error, int) {
      if (!error) drain();
    });
  }
  asio::co_spawn(context_, accept(), asio::detached);
  for (size_t i = 0; i < replicas_.size(); ++i) asio::co_spawn(context_, watch(i), asio::detached);
}

void Core::drain() {
  if (std::exchange(draining_, true)) return;
  log_info("draining: {} connections", sessions_.size());
  error_code ignored;
  acceptor_.close(ignored);
  for (Session* session : std::vector<Session*>(sessions_.begin(), sessions_.end())) session->end_soon();
  if (sessions_.empty()) return end();
  deadline_.expires_after(span_of(options_.shutdown_timeout));
  deadline_.async_wait([this](const error_code& error) {
    if (!error) end();
  });
}

void Core::left(Session* session) {
  sessions_.erase(session);
  if (draining_ && sessions_.empty()) end();
}

void Core::end() {
  if (std::exchange(ended_, true)) return;
  context_.stop();
}

bool Core::ready() const {
  return !draining_ && std::any_of(replicas_.begin(), replicas_.end(), [](const ReplicaState& replica) {
    return replica.healthy && !replica.draining;
  });
}

asio::awaitable<void> Core::accept() {
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket(context_);
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor_.is_open()) co_return;
    if (!error) {
      std::make_shared<Session>(std::move(socket), *this)->start();
      continue;
    }
    asio::steady_timer pause(context_, kAcceptPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

bool Core::take_idle(size_t replica, tcp::socket& socket) {
  if (idle_[replica].empty()) return false;
  socket = std::move(idle_[replica].back());
  idle_[replica].pop_back();
  return true;
}

void Core::keep_idle(size_t replica, tcp::socket socket) {
  if (idle_[replica].size() < kMostIdle) idle_[replica].push_back(std::move(socket));
}

asio::awaitable<bool> Core::connect(size_t replica, tcp::socket& socket) {
  error_code error;
  tcp::resolver resolver(context_);
  asio::steady_timer limit(context_, span_of(options_.connect_timeout));
  limit.async_wait([&socket, &resolver](const error_code& cancelled) {
    if (cancelled) return;
    error_code ignored;
    resolver.cancel();
    socket.close(ignored);
  });
  const auto found = co_await resolver.async_resolve(addresses_[replica].host, addresses_[replica].port,
                                                     asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_await asio::async_connect(socket, found, asio::redirect_error(asio::use_awaitable, error));
  // Where the limit has passed already, its handler may be under way and close the socket: it must run first.
  if (limit.cancel() == 0) co_await asio::post(context_, asio::use_awaitable);
  if (error || !socket.is_open()) co_return false;
  socket.set_option(tcp::no_delay(true), error);
  co_return true;
}

asio::awaitable<Fetched> Core::fetch(size_t replica, std::string target, std::string fields) {
  const auto socket = std::make_shared<tcp::socket>(context_);
  const bool connected = co_await connect(replica, *socket);
  if (!connected) co_return Fetched{};
  asio::steady_timer limit(context_, span_of(options_.connect_timeout));
  limit.async_wait([socket](const error_code& cancelled) {
    error_code ignored;
    if (!cancelled) socket->close(ignored);
  });
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nhost: {}:{}\r\nconnection: close\r\n{}\r\n",
                                          target, addresses_[replica].host, addresses_[replica].port, fields);
  error_code error;
  co_await asio::async_write(*socket, asio::buffer(request),
                             asio::redirect_error(asio::use_awaitable, error));
  ResponseTracker tracker(false);
  std::string bytes(kReportPiece, '\0'), all;
  while (!error && tracker.phase() <= ResponseTracker::Phase::Body && all.size() < kMostReport) {
    const size_t got = co_await socket->async_read_some(asio::buffer(bytes),
                                                        asio::redirect_error(asio::use_awaitable, error));
    tracker.feed(std::string_view(bytes).substr(0, got));
    all.append(bytes, 0, got);
  }
  limit.cancel();
  if (tracker.phase() != ResponseTracker::Phase::Done) co_return Fetched{};
  all.erase(0, tracker.head_bytes());
  co_return Fetched{tracker.status(), std::move(all)};
}

asio::awaitable<std::optional<std::string>> Core::salt_of(size_t replica, std::string fields) {
  const auto known = salts_.find(fields);
  if (known != salts_.end()) co_return known->second;
  const Fetched report = co_await fetch(replica, "/kv/prefixes", fields);
  const Result<json::value> body = parse_json(report.body, "report");
  const json::object* object = report.status == 200 && body ? body->if_object() : nullptr;
  const json::value* salt = object == nullptr ? nullptr : object->if_contains("salt");
  if (salt == nullptr || !salt->is_string()) co_return std::nullopt;
  if (salts_.size() >= kMostSalts) salts_.clear();
  salts_[fields] = std::string(salt->get_string());
  co_return std::string(salt->get_string());
}

// Asks for reports, again and again.
asio::awaitable<void> Core::watch(size_t index) {
  while (!ended_) {
    const ReplicaState& replica = replicas_[index];
    const std::string target = fmt::format("/kv/prefixes?{}={}", replica.model, replica.version);
    const Fetched report = co_await fetch(index, target, key_line_);
    note_report(index, report);
    error_code ignored;
    pauses_[index]->expires_after(span_of(options_.poll_interval));
    co_await pauses_[index]->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void Core::note_report(size_t index, const Fetched& report) {
  ReplicaState& replica = replicas_[index];
  const Result<json::value> body = report.status == 200 ? parse_json(report.body, "report") : json::value();
  const json::object* object = body ? body->if_object() : nullptr;
  const json::value* models = object == nullptr ? nullptr : object->if_contains("models");
  const bool plain = report.status == 404;  // another program: it is there, and that is all
  const bool told = models != nullptr && models->is_array();
  if (!told && !plain) {
    if (report.status == 401 && missed_[index] == 0)
      log_error("replica {} wants a key for its report: --replica-key-file", replica.url);
    if (++missed_[index] < kMostMissed && report.status == 0) return;
    if (replica.healthy) log_warning("replica {} is gone", replica.url);
    replica.healthy = false;
    replica.keys.clear();
    replica.expected.clear();
    replica.version = 0;
    return;
  }
  missed_[index] = 0;
  const json::value* stage = told ? object->if_contains("stage") : nullptr;
  const bool loading = stage != nullptr && *stage == "loading";
  if (!replica.healthy && !loading) {
    log_info("replica {} is there", replica.url);
    join(replicas_, replica, Clock::now());
  }
  replica.healthy = !loading;
  replica.draining = stage != nullptr && *stage == "draining";
  const json::value* role = told ? object->if_contains("role") : nullptr;
  replica.role = role != nullptr && role->is_string() ? std::string(role->get_string()) : std::string();
  if (!told || models->get_array().empty() || !models->get_array()[0].is_object()) return;
  read_model(models->get_array()[0].get_object(), replica);
  const json::value* salt = object->if_contains("salt");
  isolated_ |= salt != nullptr && salt->is_string() && !salt->get_string().empty();
}

std::string Core::status() const {
  json::array list;
  for (const ReplicaState& replica : replicas_)
    list.push_back({{"url", replica.url},
                    {"healthy", replica.healthy},
                    {"draining", replica.draining},
                    {"model", replica.model},
                    {"role", replica.role},
                    {"blocks", replica.keys.size()},
                    {"running", replica.running},
                    {"waiting", replica.waiting},
                    {"requests", replica.requests}});
  return write_json(json::object{
      {"replicas", std::move(list)}, {"waiting", queue_.waiting()}, {"connections", sessions_.size()}});
}

std::string Core::metrics() const {
  server::PrometheusText text;
  const auto each = [&](std::string_view name, std::string_view kind, std::string_view help, auto value) {
    text.family(fmt::format("sluice_route_{}", name), kind, help);
    for (const ReplicaState& replica : replicas_)
      text.value({{"replica", replica.url}}, static_cast<double>(value(replica)));
  };
  each("replica_healthy", "gauge", "1: it gets requests",
       [](const ReplicaState& r) { return r.healthy && !r.draining; });
  each("replica_running", "gauge", "requests under way there",
       [](const ReplicaState& r) { return r.running; });
  each("replica_waiting", "gauge", "requests that wait there, by its last report",
       [](const ReplicaState& r) { return r.waiting; });
  each("replica_blocks", "gauge", "KV blocks that it says it can reuse",
       [](const ReplicaState& r) { return r.keys.size(); });
  each("replica_requests_total", "counter", "requests sent there",
       [](const ReplicaState& r) { return r.requests; });
  each("replica_failures_total", "counter", "requests that failed there before or in their answers",
       [](const ReplicaState& r) { return r.failures; });
  each("replica_prompt_tokens_total", "counter", "tokens of prompts sent there, as far as they were read",
       [](const ReplicaState& r) { return r.prompt_tokens; });
  each("replica_cached_tokens_total", "counter", "of these, those that it was expected to have",
       [](const ReplicaState& r) { return r.cached_tokens; });
  const auto totals = std::to_array<std::tuple<std::string_view, uint64_t, std::string_view>>({
      {"sluice_route_requests_total", counters_.requests, "requests passed on"},
      {"sluice_route_retries_total", counters_.retries, "sent to another replica before the first byte"},
      {"sluice_route_broken_total", counters_.broken, "answers that their replica did not end"},
      {"sluice_route_refused_total", counters_.refused, "requests that no replica could take"},
      {"sluice_route_gone_total", counters_.gone, "clients that left before the end"},
  });
  for (const auto& [name, value, help] : totals) {
    text.family(name, "counter", help);
    text.value({}, static_cast<double>(value));
  }
  text.family("sluice_route_waiting", "gauge", "requests that wait here for a place");
  text.value({}, static_cast<double>(queue_.waiting()));
  text.family("sluice_route_connections", "gauge", "connections of clients");
  text.value({}, static_cast<double>(sessions_.size()));
  text.family("sluice_route_delay_seconds", "histogram",
              "from a request's last byte to its first one sent on");
  text.histogram({}, counters_.delay, server::duration_cuts());
  return text.take();
}

}  // namespace sluice::route
