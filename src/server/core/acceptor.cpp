#include "server/core/acceptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/observe/process_stats.h"

namespace sluice::server {

using boost::system::error_code;

namespace {

constexpr int kSpareFiles = 64;                         // what is not a connection: models, logs, tiers
constexpr std::chrono::milliseconds kAcceptPause{100};  // where the system has no file for a connection
constexpr std::string_view kFullReply =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\n"
    "content-length: 117\r\nconnection: close\r\n\r\n"
    R"({"error":{"message":"too many connections","type":"server_error","param":null,"code":"server_is_overloaded"}})"
    "        ";

IpAddress address_of(const tcp::endpoint& endpoint) {
  const std::string text = endpoint.address().to_string();  // with its zone: "fe80::1%eth0"
  return IpAddress::parse(std::string_view(text).substr(0, text.find('%'))).value_or(IpAddress());
}

}  // namespace

PlaceLimits connection_places(const ServerOptions& options) {
  const int64_t files = std::max<int64_t>(8, raise_file_limit() - kSpareFiles);
  const int all = static_cast<int>(std::min<int64_t>(files, options.max_connections));
  const int part = options.address_connections > 0 ? options.address_connections : (all + 1) / 2;
  return {all, std::min(all, part)};
}

// Begins again where a lack of memory ends it, of which Boost.Asio may tell only by destroying the handler.
class Acceptor::Restart {
 public:
  explicit Restart(Acceptor& acceptor) : acceptor_(&acceptor) {}
  Restart(Restart&& other) noexcept : acceptor_(std::exchange(other.acceptor_, nullptr)) {}
  Restart& operator=(Restart&&) = delete;
  ~Restart() {
    if (acceptor_ == nullptr) return;
    acceptor_->accepting_ = false;
    if (!acceptor_->acceptor_.is_open()) return;
    try {
      asio::post(acceptor_->parts_.threads.first(), [acceptor = acceptor_] { acceptor->keep_accepting(); });
    } catch (const std::bad_alloc&) {  // the server asks for it again, once a second
    }
  }
  void operator()(const std::exception_ptr&) noexcept {}

 private:
  Acceptor* acceptor_;
};

Acceptor::Acceptor(Parts parts) : parts_(std::move(parts)), acceptor_(parts_.threads.first()) {}

Status Acceptor::listen() {
  const ServerOptions& options = parts_.state.options();
  error_code error;
  tcp::resolver resolver(parts_.threads.first());
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    return Error{ErrorCode::Unavailable,
                 fmt::format("--host {} is no address of this machine", options.host)};
  const tcp::endpoint wanted = *found.begin();
  acceptor_.open(wanted.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(wanted, error);
  if (!error) acceptor_.listen(4096, error);
  if (error == asio::error::address_in_use)
    return Error{ErrorCode::Unavailable,
                 fmt::format("port {} of {} is taken; --port chooses another", options.port, options.host)};
  if (error)
    return Error{ErrorCode::Unavailable,
                 fmt::format("cannot listen on {} port {}: {}", options.host, options.port, error.message())};
  endpoint_ = acceptor_.local_endpoint(error);
  return {};
}

std::string Acceptor::url() const {
  const asio::ip::address address = endpoint_.address();
  const std::string name = address.is_unspecified() ? "localhost" : address.to_string();
  const bool brackets = address.is_v6() && !address.is_unspecified();
  return brackets ? fmt::format("http://[{}]:{}", name, port()) : fmt::format("http://{}:{}", name, port());
}

void Acceptor::keep_accepting() {
  if (accepting_ || !acceptor_.is_open()) return;
  Restart handler(*this);
  accepting_ = true;
  asio::co_spawn(parts_.threads.first(), accept(), std::move(handler));
}

void Acceptor::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

asio::awaitable<void> Acceptor::accept() {
  bool told = false;  // that there are no files left
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket(parts_.threads.next());
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor_.is_open()) co_return;
    if (!error) {
      take(std::move(socket));
      told = false;
      continue;
    }
    // Out of files or memory: others must end first.
    parts_.state.metrics().troubled(RejectReason::Connections);
    if (!std::exchange(told, true)) log_warning("connections have to wait: {}", error.message());
    asio::steady_timer pause(parts_.threads.first(), kAcceptPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

void Acceptor::take(tcp::socket socket) {
  HttpMetrics& metrics = parts_.state.metrics();
  metrics.connections_accepted.add();
  error_code error;
  const tcp::endpoint endpoint = socket.remote_endpoint(error);
  if (error) return;  // it has gone already
  const IpAddress peer = address_of(endpoint);
  ConnectionTable& table = parts_.table;
  const std::optional<ConnectionTable::Place> place =
      parts_.state.proxies().contains(peer) ? table.take_uncounted() : table.take(peer.client());
  if (!place) return refuse(std::move(socket));
  metrics.connections += 1;
  const uint64_t number = place->number;
  try {
    if (place->leaving) {
      metrics.troubled(RejectReason::Connections);
      if (const auto leaving = table.find(*place->leaving).lock()) leaving->give_way();
    }
    auto connection = std::make_shared<Connection>(std::move(socket), Facilities{parts_.state, table},
                                                   Caller{number, peer}, [this, number] { forget(number); });
    table.attach(number, connection);
    connection->start();
  } catch (const std::bad_alloc&) {
    metrics.troubled(RejectReason::Connections);
    forget(number);
  }
}

void Acceptor::forget(uint64_t number) {
  parts_.state.metrics().connections -= 1;
  parts_.table.leave(number);
  parts_.left();
}

void Acceptor::refuse(tcp::socket socket) {
  parts_.state.metrics().troubled(RejectReason::Connections);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(kFullReply), ignored);
}

}  // namespace sluice::server
