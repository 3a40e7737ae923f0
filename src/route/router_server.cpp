#include "route/router_server.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <fstream>
#include <utility>
#include <vector>

#include "route/core.h"
#include "server/http/http.h"

namespace sluice::route {

namespace {

Result<std::string> read_key(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::string_view text = server::trim(line);
  // "NAME:KEY", as in the replicas' own files.
  const std::string key(text.substr(text.find(':') == std::string_view::npos ? 0 : text.find(':') + 1));
  if (!key.empty() && key.find_first_of("\r\n ") == std::string::npos) return key;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("--replica-key-file '{}' has no key in its first line", path)};
}

}  // namespace

RouterServer::RouterServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
RouterServer::~RouterServer() = default;

Result<std::unique_ptr<RouterServer>> RouterServer::open(const RouteOptions& options, PromptReader reader,
                                                         bool signals) {
  if (options.replicas.empty())
    return Error{ErrorCode::InvalidArgument, "there is no replica; --replica http://HOST:PORT names one"};
  std::vector<ReplicaAddress> addresses;
  for (const std::string& text : options.replicas) {
    Result<ReplicaAddress> address = parse_replica(text);
    if (!address) return address.error();
    addresses.push_back(std::move(*address));
  }
  Result<std::string> key = read_key(options.replica_key_file);
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
