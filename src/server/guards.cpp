#include "server/guards.h"

#include <algorithm>

namespace sluice::server {

namespace {

// "[::1]:8080" → "[::1]", "a.example:80" → "a.example"
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool listed(const std::vector<std::string>& list, std::string_view word) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    return entry == "*" || equals_ignoring_case(entry, word);
  });
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address == "::1" || address.starts_with("127.") || address == "localhost";
}

bool host_allowed(const GuardOptions& options, std::string_view host) {
  const std::string_view name = without_port(host);
  const bool own = equals_ignoring_case(name, "localhost") || name == "[::1]" || name == "127.0.0.1";
  if (own || listed(options.allowed_hosts, name)) return true;
  return !options.loopback && options.allowed_hosts.empty();
}

Origin judge_origin(const GuardOptions& options, const RequestHead& head) {
  const std::string* origin = head.find("origin");
  if (origin == nullptr) {
    const std::string* site = head.find("sec-fetch-site");
    const std::string* mode = head.find("sec-fetch-mode");
    const bool embedded =
        site != nullptr && *site == "cross-site" && (mode == nullptr || *mode != "navigate");
    return embedded ? Origin::Foreign : Origin::None;
  }
  if (listed(options.cors_origins, *origin)) return Origin::Listed;
  const std::string_view text = *origin;
  const size_t slashes = text.find("://");
  if (slashes == std::string_view::npos || head.count("origin") > 1) return Origin::Foreign;
  const std::string_view scheme = text.substr(0, slashes), host = text.substr(slashes + 3);
  const bool web = scheme == "http" || scheme == "https";
  return web && !host.empty() && equals_ignoring_case(host, head.host) ? Origin::None : Origin::Foreign;
}

}  // namespace sluice::server
