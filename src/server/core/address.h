// IP addresses and networks, and which address a request comes from where proxies stand between.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/http.h"

namespace sluice::server {

// Of either kind; an IPv4 address is kept as the IPv6 address that maps it (::ffff:a.b.c.d), so that both spellings of
// one peer are equal.
class IpAddress {
 public:
  // "192.0.2.1", "2001:db8::1"; without brackets, port and zone.
  static std::optional<IpAddress> parse(std::string_view text);

  bool is_v4() const;
  bool is_loopback() const;
  std::string text() const;
  // Whose address it is, for limits and shares: all of an IPv4 address, the first 64 bits of an IPv6 address, because
  // one client has all addresses behind them.
  std::string client() const;
  // The first bits alone, the others 0.
  IpAddress masked(int bits) const;

  bool operator==(const IpAddress&) const = default;

 private:
  std::array<uint8_t, 16> bytes_{};
};

// Addresses that are given as CIDR blocks: "10.0.0.0/8", "fd00::/8", or one address.
class NetworkList {
 public:
  // Each text may hold several blocks, with commas between. Errors name the block.
  static Result<NetworkList> parse(const std::vector<std::string>& texts);

  bool contains(const IpAddress& address) const;
  bool empty() const { return networks_.empty(); }

 private:
  struct Network {
    IpAddress base;
    int bits;  // of 128
  };
  std::vector<Network> networks_;
};

// The address that a request comes from: the peer's, or where the peer is a trusted proxy the last one in
// X-Forwarded-For that is none. An entry that is no address ends the search: what is left of it was not written by a
// proxy of ours.
IpAddress origin_address(const NetworkList& proxies, const IpAddress& peer, const RequestHead& head);

}  // namespace sluice::server
