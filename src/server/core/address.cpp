#include "server/core/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace sluice::server {

namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
constexpr int kMappedBits = 96, kAllBits = 128, kClientBits = 64;
constexpr size_t kMostText = 64;  // bytes of an address or block

// "192.0.2.1:80" and "[2001:db8::1]:80" as some proxies write them, without their port.
std::string_view bare_address(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    return end == std::string_view::npos ? text : text.substr(1, end - 1);
  }
  const size_t colon = text.find(':');
  const bool one = colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos;
  return one ? text.substr(0, colon) : text;
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// All entries of X-Forwarded-For, the nearest hop last.
std::vector<std::string_view> forwarded_entries(const RequestHead& head) {
  std::vector<std::string_view> entries;
  for (const HeaderField& field : head.fields) {
    if (field.name != "x-forwarded-for") continue;
    const std::vector<std::string_view> parts = split_list(field.value);
    entries.insert(entries.end(), parts.begin(), parts.end());
  }
  return entries;
}

}  // namespace

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (text.empty() || text.size() > kMostText) return std::nullopt;
  const std::string word(text);
  IpAddress address;
  if (inet_pton(AF_INET6, word.c_str(), address.bytes_.data()) == 1) return address;
  std::copy(kMapped.begin(), kMapped.end(), address.bytes_.begin());
  if (inet_pton(AF_INET, word.c_str(), address.bytes_.data() + kMapped.size()) == 1) return address;
  return std::nullopt;
}

bool IpAddress::is_v4() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes_.begin());
}

bool IpAddress::is_loopback() const {
  if (is_v4()) return bytes_[kMapped.size()] == 127;
  return *this == *parse("::1");
}

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = is_v4();
  inet_ntop(v4 ? AF_INET : AF_INET6, bytes_.data() + (v4 ? kMapped.size() : 0), text.data(), text.size());
  return text.data();
}

std::string IpAddress::client() const {
  if (is_v4() || is_loopback()) return text();
  return fmt::format("{}/{}", masked(kClientBits).text(), kClientBits);
}

IpAddress IpAddress::masked(int bits) const {
  IpAddress out = *this;
  for (int i = 0; i < static_cast<int>(out.bytes_.size()); ++i) {
    const int kept = std::clamp(bits - 8 * i, 0, 8);
    out.bytes_[static_cast<size_t>(i)] &= static_cast<uint8_t>(0xFF00 >> kept);
  }
  return out;
}

Result<NetworkList> NetworkList::parse(const std::vector<std::string>& texts) {
  NetworkList list;
  for (const std::string& text : texts) {
    for (const std::string_view part : split_list(text)) {
      const size_t slash = part.find('/');
      const std::optional<IpAddress> base = IpAddress::parse(part.substr(0, slash));
      const auto wrong = [&](const char* why) {
        return Error{ErrorCode::InvalidArgument, fmt::format("'{}' {}", part, why)};
      };
      if (!base) return wrong("is no address or CIDR block");
      const int most = base->is_v4() ? kAllBits - kMappedBits : kAllBits;
      int bits = most;
      if (slash != std::string_view::npos) {
        const char* const end = part.data() + part.size();
        const auto read = std::from_chars(part.data() + slash + 1, end, bits);
        if (read.ec != std::errc() || read.ptr != end || bits < 0 || bits > most)
          return wrong(base->is_v4() ? "has no prefix length of 0 to 32"
                                     : "has no prefix length of 0 to 128");
      }
      const int all = bits + (kAllBits - most);
      if (base->masked(all) != *base) return wrong("has bits behind its prefix");
      list.networks_.push_back({*base, all});
    }
  }
  return list;
}

bool NetworkList::contains(const IpAddress& address) const {
  return std::any_of(networks_.begin(), networks_.end(),
                     [&](const Network& network) { return address.masked(network.bits) == network.base; });
}

IpAddress origin_address(const NetworkList& proxies, const IpAddress& peer, const RequestHead& head) {
  if (!proxies.contains(peer)) return peer;
  const std::vector<std::string_view> entries = forwarded_entries(head);
  IpAddress nearest = peer;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::optional<IpAddress> address = IpAddress::parse(bare_address(*entry));
    if (!address) return nearest;
    nearest = *address;
    if (!proxies.contains(nearest)) return nearest;
  }
  return nearest;
}

}  // namespace sluice::server
