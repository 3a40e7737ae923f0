#include "server/access/guards.h"

#include <algorithm>

#include "server/core/address.h"

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

bool is_loopback_name(std::string_view name) {
  return equals_ignoring_case(name, "localhost") || name == "[::1]" || name == "127.0.0.1";
}

bool is_address(std::string_view name) {
  const bool brackets = name.starts_with('[') && name.ends_with(']');
  return IpAddress::parse(brackets ? name.substr(1, name.size() - 2) : name).has_value();
}

bool is_machine(const std::string& machine, std::string_view name) {
  return !machine.empty() &&
         (equals_ignoring_case(name, machine) || equals_ignoring_case(name, machine + ".local"));
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address == "::1" || address.starts_with("127.") || address == "localhost";
}

bool host_allowed(const GuardOptions& options, std::string_view host, Keys keys) {
  const std::string_view name = without_port(host);
  if (is_loopback_name(name) || listed(options.allowed_hosts, name)) return true;
  if (options.loopback || !options.allowed_hosts.empty()) return false;
  return keys == Keys::Asked || is_address(name) || is_machine(options.machine, name);
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
  if (scheme != "http" && scheme != "https") return Origin::Foreign;
  if (!host.empty() && equals_ignoring_case(host, head.host)) return Origin::None;
  // A page that this machine serves itself, on another port.
  return is_host(host) && is_loopback_name(without_port(host)) ? Origin::Listed : Origin::Foreign;
}

}  // namespace sluice::server
