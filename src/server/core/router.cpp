#include "server/core/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "server/http/http.h"

namespace sluice::server {

namespace {

struct OwnRow {
  OwnRoute route;
  std::string_view path;
  bool needs_key;
};

constexpr auto kOwn = std::to_array<OwnRow>({
    {OwnRoute::Health, "/health", false},
    {OwnRoute::Health, "/v1/health", false},
    {OwnRoute::Ping, "/health/live", false},
    {OwnRoute::Ready, "/ready", false},
    {OwnRoute::Version, "/version", true},
    {OwnRoute::Ping, "/ping", true},
    {OwnRoute::Load, "/load", true},
    {OwnRoute::Metrics, "/metrics", true},
    {OwnRoute::OpenApi, "/openapi.json", true},
    {OwnRoute::Live, "/api/live", true},
});

// What the path's "{…}" took, or "" where the paths are equal; nothing where they do not match.
std::optional<std::string> matches(std::string_view pattern, std::string_view path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path ? std::optional(std::string()) : std::nullopt;
  if (!path.starts_with(pattern.substr(0, brace)) || path.size() == brace) return std::nullopt;
  return decode_percent(path.substr(brace));
}

}  // namespace

bool Route::polled() const {
  constexpr std::array kPolled{OwnRoute::Health, OwnRoute::Ready, OwnRoute::Ping, OwnRoute::Load,
                               OwnRoute::Metrics};
  const auto* own = std::get_if<OwnRoute>(&target);
  return own != nullptr && std::find(kPolled.begin(), kPolled.end(), *own) != kPolled.end();
}

Router::Router(const std::vector<api::Operation>& operations, const std::vector<Asset>& assets) {
  for (const OwnRow& row : kOwn)
    routes_.push_back({"GET", std::string(row.path), row.route, row.needs_key, dialect_of(row.path)});
  for (const api::Operation& operation : operations)
    routes_.push_back(
        {operation.method, std::string(operation.path), &operation, operation.needs_key, operation.dialect});
  for (const Asset& asset : assets) routes_.push_back({"GET", asset.path, &asset, false});
  // Exact paths before templates; of equal ones the first stays first.
  std::stable_sort(routes_.begin(), routes_.end(), [](const Route& a, const Route& b) {
    return (a.path.find('{') == std::string::npos) > (b.path.find('{') == std::string::npos);
  });
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
  return path.starts_with("/api/") ? api::Dialect::Ollama : api::Dialect::OpenAi;
}

}  // namespace sluice::server
