#include "server/fetch/url_fetcher.h"

namespace sluice::server {

namespace {

// The registries of special-purpose addresses, as far as nobody offers pictures there. Of IPv6, all that is handed out
// lies in 2000::/3.
const NetworkList& special_networks() {
  static const NetworkList list = *NetworkList::parse(
      {"0.0.0.0/8,10.0.0.0/8,100.64.0.0/10,127.0.0.0/8,169.254.0.0/16,172.16.0.0/12",
       "192.0.0.0/24,192.0.2.0/24,192.88.99.0/24,192.168.0.0/16,198.18.0.0/15,198.51.100.0/24,203.0.113.0/24",
       "224.0.0.0/4,240.0.0.0/4", "2001::/23,2001:db8::/32,2002::/16,3fff::/20"});
  return list;
}

const NetworkList& global_ipv6() {
  static const NetworkList list = *NetworkList::parse({"2000::/3"});
  return list;
}

}  // namespace

bool is_public(const IpAddress& address) {
  if (special_networks().contains(address)) return false;
  return address.is_v4() || global_ipv6().contains(address);
}

}  // namespace sluice::server
