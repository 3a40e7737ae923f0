// Which address a request comes from, and whom it is counted as.
#include "server/core/address.h"

#include <fmt/format.h>

#include "tests/server/rig.h"

namespace sluice::server {
namespace {

IpAddress address(std::string_view text) {
  const std::optional<IpAddress> parsed = IpAddress::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(IpAddress());
}

NetworkList networks(const std::vector<std::string>& texts) {
  return *NetworkList::parse(texts);
}

TEST(Address, BothSpellingsOfAPeerAreOne) {
  EXPECT_EQ(address("::ffff:192.0.2.1"), address("192.0.2.1"));
  EXPECT_EQ(address("::ffff:192.0.2.1").text(), "192.0.2.1");
  EXPECT_EQ(address("2001:DB8:0::1").text(), "2001:db8::1");
  EXPECT_TRUE(address("127.8.0.1").is_loopback());
  EXPECT_TRUE(address("::1").is_loopback());
  EXPECT_FALSE(address("::ffff:10.0.0.1").is_loopback());
  for (const char* wrong :
       {"", "1.2.3", "1.2.3.4.5", "256.0.0.1", "localhost", "fe80::1%eth0", "[::1]", "1.2.3.4:5"})
    EXPECT_FALSE(IpAddress::parse(wrong)) << wrong;
}

TEST(Address, AClientHasAWholeNetworkOfIpv6) {
  EXPECT_EQ(address("2001:db8:1:2:3:4:5:6").client(), "2001:db8:1:2::/64");
  EXPECT_EQ(address("2001:db8:1:2::9").client(), address("2001:db8:1:2:3:4:5:6").client());
  EXPECT_NE(address("2001:db8:1:3::9").client(), address("2001:db8:1:2::9").client());
  EXPECT_EQ(address("192.0.2.7").client(), "192.0.2.7");
  EXPECT_EQ(address("::1").client(), "::1");
}

TEST(Address, NetworksHoldTheirAddresses) {
  const NetworkList list = networks({"10.0.0.0/8, 192.0.2.5", "fd00::/8", "203.0.113.128/25"});
  for (const char* inside : {"10.255.1.2", "::ffff:10.0.0.1", "192.0.2.5", "fd12::1", "203.0.113.200"})
    EXPECT_TRUE(list.contains(address(inside))) << inside;
  for (const char* outside : {"11.0.0.1", "192.0.2.6", "fe00::1", "203.0.113.127", "::"})
    EXPECT_FALSE(list.contains(address(outside))) << outside;
  EXPECT_TRUE(networks({"0.0.0.0/0"}).contains(address("8.8.8.8")));
  EXPECT_FALSE(networks({"0.0.0.0/0"}).contains(address("2001:db8::1"))) << "all of IPv4 is not all";
  for (const char* wrong :
       {"", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x", "10.0.0.1/8", "fd00::/129", "proxy", "10.0.0.0/"}) {
    const Result<NetworkList> list_of_wrong = NetworkList::parse({wrong});
    ASSERT_FALSE(list_of_wrong) << wrong;
    EXPECT_NE(list_of_wrong.error().message.find(fmt::format("'{}'", wrong)), std::string::npos);
  }
}

TEST(Address, OnlyProxiesOfOursNameTheClient) {
  const NetworkList proxies = networks({"10.0.0.0/8"});
  const auto from = [&](std::string_view peer, const std::vector<std::string>& forwarded) {
    RequestHead head;
    for (const std::string& value : forwarded) head.fields.push_back({"x-forwarded-for", value});
    return origin_address(proxies, address(peer), head).text();
  };
  EXPECT_EQ(from("192.0.2.1", {"203.0.113.9"}), "192.0.2.1") << "a stranger may write what it likes";
  EXPECT_EQ(from("10.0.0.1", {"203.0.113.9"}), "203.0.113.9");
  EXPECT_EQ(from("10.0.0.1", {"6.6.6.6, 203.0.113.9"}), "203.0.113.9")
      << "what the client wrote is no matter";
  EXPECT_EQ(from("10.0.0.1", {"6.6.6.6, 203.0.113.9, 10.0.0.2"}), "203.0.113.9") << "a chain of proxies";
  EXPECT_EQ(from("10.0.0.1", {"6.6.6.6", "203.0.113.9", "10.0.0.2"}), "203.0.113.9") << "fields are one list";
  EXPECT_EQ(from("10.0.0.1", {"203.0.113.9:4711"}), "203.0.113.9");
  EXPECT_EQ(from("10.0.0.1", {"[2001:db8::7]:4711"}), "2001:db8::7");
  EXPECT_EQ(from("10.0.0.1", {"2001:db8::7"}), "2001:db8::7");
  EXPECT_EQ(from("10.0.0.1", {}), "10.0.0.1");
  EXPECT_EQ(from("10.0.0.1", {"10.0.0.9, 10.0.0.2"}), "10.0.0.9") << "a client among the proxies";
  EXPECT_EQ(from("10.0.0.1", {"203.0.113.9, unknown"}), "10.0.0.1")
      << "behind what is no address nothing counts";
  EXPECT_EQ(from("10.0.0.1", {""}), "10.0.0.1");
}

TEST(Address, LimitsCountWhoStandsBehindAProxy) {
  RigOptions options;
  options.server.trusted_proxies = {"127.0.0.2"};
  options.server.key_requests_per_minute = 1;
  Rig rig(options);
  const auto status = [&](const char* peer, const std::string& client) {
    return rig.ask_from(peer, post(R"({"max_tokens":1})", "X-Forwarded-For: " + client + "\r\n")).status;
  };
  EXPECT_EQ(status("127.0.0.2", "203.0.113.1"), 200);
  EXPECT_EQ(status("127.0.0.2", "203.0.113.1"), 429);
  EXPECT_EQ(status("127.0.0.2", "203.0.113.2"), 200) << "another client of the same proxy";
  EXPECT_EQ(status("127.0.0.3", "203.0.113.3"), 200);
  EXPECT_EQ(status("127.0.0.3", "203.0.113.4"), 429) << "no proxy of ours: the field is not read";
}

TEST(Address, WrongNetworksAreRefusedAtTheStart) {
  ServerOptions options;
  options.trusted_proxies = {"10.0.0.0/8", "10.0.0.0/40"};
  const Status status = validate(options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "--trusted-proxy: '10.0.0.0/40' has no prefix length of 0 to 32");
}

}  // namespace
}  // namespace sluice::server
