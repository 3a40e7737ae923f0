#include "server/core/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "server/http/http.h"

namespace sluice::server {

namespace {

enum class Access : uint8_t { Public, Key, Admin };

struct OwnRow {
  OwnRoute route;
  std::string_view method, path;
  Access access;
};

constexpr auto kOwn = std::to_array<OwnRow>({
    {OwnRoute::Health, "GET", "/health", Access::Public},
    {OwnRoute::Health, "GET", "/v1/health", Access::Public},
    {OwnRoute::Ping, "GET", "/health/live", Access::Public},
    {OwnRoute::Ready, "GET", "/ready", Access::Public},
    {OwnRoute::Version, "GET", "/version", Access::Key},
    {OwnRoute::Ping, "GET", "/ping", Access::Key},
    {OwnRoute::Load, "GET", "/load", Access::Key},
    {OwnRoute::Metrics, "GET", "/metrics", Access::Key},
    {OwnRoute::OpenApi, "GET", "/openapi.json", Access::Key},
    {OwnRoute::Live, "GET", "/api/live", Access::Key},
    {OwnRoute::Prefixes, "GET", "/kv/prefixes", Access::Key},
    {OwnRoute::Prefill, "POST", "/kv/prefill", Access::Key},
    {OwnRoute::Ping, "GET", "/v2/health/live", Access::Public},
    {OwnRoute::Ready, "GET", "/v2/health/ready", Access::Public},
    {OwnRoute::ModelReady, "GET", "/v2/models/{model}/ready", Access::Key},
    {OwnRoute::Repository, "POST", "/v2/repository/index", Access::Key},
    {OwnRoute::LoadModel, "POST", "/v2/repository/models/{model}/load", Access::Admin},
    {OwnRoute::UnloadModel, "POST", "/v2/repository/models/{model}/unload", Access::Admin},
});

// What the path's "{…}" took, or "" where the paths are equal; nothing where they do not match.
std::optional<std::string> matches(std::string_view pattern, std::string_view path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path ? std::optional(std::string()) : std::nullopt;
  const std::string_view end = pattern.substr(pattern.find('}', brace) + 1);
  if (!path.starts_with(pattern.substr(0, brace)) || !path.ends_with(end)) return std::nullopt;
  if (path.size() <= brace + end.size()) return std::nullopt;
  return decode_percent(path.substr(brace, path.size() - brace - end.size()));
}

// Exact paths come first, then templates with an end of their own, which others would take for part of a name.
int rank(std::string_view path) {
  if (path.find('{') == std::string_view::npos) return 0;
  return path.ends_with('}') ? 2 : 1;
}

}  // namespace

bool Route::polled() const {
  constexpr std::array kPolled{OwnRoute::Health,  OwnRoute::Ready,      OwnRoute::Ping,    OwnRoute::Load,
                               OwnRoute::Metrics, OwnRoute::ModelReady, OwnRoute::Prefixes};
  const auto* own = std::get_if<OwnRoute>(&target);
  return own != nullptr && std::find(kPolled.begin(), kPolled.end(), *own) != kPolled.end();
}

Router::Router(const std::vector<api::Operation>& operations, const std::vector<Asset>& assets) {
  for (const OwnRow& row : kOwn)
    routes_.push_back({row.method, std::string(row.path), row.route, row.access != Access::Public,
                       row.access == Access::Admin, dialect_of(row.path)});
  for (const api::Operation& operation : operations)
    routes_.push_back({operation.method, std::string(operation.path), &operation, operation.needs_key, false,
                       operation.dialect});
  for (const Asset& asset : assets) routes_.push_back({"GET", asset.path, &asset, false});
  // Of equal ones the first stays first.
  std::stable_sort(routes_.begin(), routes_.end(),
                   [](const Route& a, const Route& b) { return rank(a.path) < rank(b.path); });
}

Match Router::match(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    std::optional<std::string> rest = matches(route.path, path);
    if (!rest) continue;
    if (route.method == wanted) return {&route, std::move(*rest), ""};
    const std::string also = route.method == "GET" ? "GET, HEAD" : std::string(route.method);
    if (match.allow.find(also) == std::string::npos) match.allow += (match.allow.empty() ? "" : ", ") + also;
  }
  return match;
}

size_t Router::index_of(const Route* route) const {
  return route == nullptr ? routes_.size() : static_cast<size_t>(route - routes_.data());
}

api::Dialect Router::dialect_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return api::Dialect::Anthropic;
  if (path == "/v2" || path.starts_with("/v2/")) return api::Dialect::Kserve;
  return path.starts_with("/api/") ? api::Dialect::Ollama : api::Dialect::OpenAi;
}

}  // namespace sluice::server
