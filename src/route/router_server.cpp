#include "route/router_server.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <utility>
#include <vector>

#include "route/core.h"
#include "server/handover/prefill_peers.h"

namespace sluice::route {

RouterServer::RouterServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
RouterServer::~RouterServer() = default;

Result<std::unique_ptr<RouterServer>> RouterServer::open(const RouteOptions& options, PromptReader reader,
                                                         bool signals) {
  if (options.replicas.empty())
    return Error{ErrorCode::InvalidArgument, "there is no replica; --replica http://HOST:PORT names one"};
  std::vector<server::PeerAddress> addresses;
  for (const std::string& text : options.replicas) {
    Result<server::PeerAddress> address = server::parse_peer("--replica", text);
    if (!address) return address.error();
    addresses.push_back(std::move(*address));
  }
  Result<std::string> key = server::read_peer_key("--replica-key-file", options.replica_key_file);
  if (!key) return key.error();
  auto core = std::make_unique<Core>(options, std::move(reader), std::move(addresses), std::move(*key));
  if (Status listening = core->listen(); !listening) return listening.error();
  core->start(signals);
  return std::unique_ptr<RouterServer>(new RouterServer(std::move(core)));
}

int RouterServer::port() const {
  return core_->port();
}
std::string RouterServer::url() const {
  return core_->url();
}
void RouterServer::run() {
  core_->run();
}
void RouterServer::drain() {
  boost::asio::post(core_->context(), [core = core_.get()] { core->drain(); });
}

}  // namespace sluice::route
