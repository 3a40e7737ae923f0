// Which route a request means. What a request may do hangs on the route that was matched, never on its path's text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/core/service.h"
#include "server/http/assets.h"

namespace sluice::server {

// The server's own routes.
enum class OwnRoute : uint8_t {
  Health,
  Ready,
  Version,
  Ping,
  Load,
  Metrics,
  OpenApi,
  Live,
  Prefixes,
  Prefill,
  ModelReady,
  Repository,
  LoadModel,
  UnloadModel,
};

struct Route {
  std::string_view method;
  std::string path;  // as written in logs and metrics: a template, out of a closed set
  std::variant<OwnRoute, const api::Operation*, const Asset*> target;
  bool needs_key = true;
  bool needs_admin = false;  // a key of --admin-key
  api::Dialect dialect = api::Dialect::OpenAi;

  // Whether probes and scrapers ask for it every few seconds.
  bool polled() const;
};

struct Match {
  const Route* route = nullptr;  // null: none
  std::string rest;              // what the "{…}" of the path took, decoded
  std::string allow;             // where the path is known under other methods: which
};

class Router {
 public:
  // Both lists outlive the router.
  Router(const std::vector<api::Operation>& operations, const std::vector<Asset>& assets);
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // HEAD is answered by the routes of GET.
  Match match(std::string_view method, std::string_view path) const;
  const std::vector<Route>& routes() const { return routes_; }
  // The number of a route, for counters; routes().size() for null.
  size_t index_of(const Route* route) const;
  // Whose words an error about an unknown path is written in.
  static api::Dialect dialect_of(std::string_view path);

 private:
  std::vector<Route> routes_;
};

}  // namespace sluice::server
