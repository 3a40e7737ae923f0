// Which addresses a client may make the server talk to.
#include <fmt/format.h>

#include "server/core/options.h"
#include "server/fetch/url_fetcher.h"
#include "tests/server/rig.h"

namespace sluice::server {
namespace {

TEST(Fetch, OnlyAddressesOfThePublicInternetArePublic) {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.0.1",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.1",
                           "192.168.1.1",
                           "198.18.0.1",
                           "203.0.113.9",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::7f00:1",
                           "fc00::1",
                           "fd12:3456::1",
                           "fe80::1",
                           "ff02::1",
                           "2001::1",
                           "2001:db8::1",
                           "2002:7f00:1::1"})
    EXPECT_FALSE(is_public(*IpAddress::parse(text))) << text;
  for (const char* text : {"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1",
                           "192.169.0.1", "::ffff:8.8.8.8", "2001:4860:4860::8888", "2606:4700::1111"})
    EXPECT_TRUE(is_public(*IpAddress::parse(text))) << text;
}

TEST(Fetch, NeitherNamesNorSpellingsNorSchemesLeadInside) {
  const auto fetcher = make_url_fetcher({});
  if (!fetcher) GTEST_SKIP() << fetcher.error().message;
  for (const char* url :
       {"http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/", "http://0x7f000001:9/",
        "http://2130706433:9/", "http://127.1:9/", "http://0:9/", "http://[::ffff:127.0.0.1]:9/"}) {
    const Result<std::string> file = (*fetcher)->fetch(url, nullptr);
    ASSERT_FALSE(file) << url;
    EXPECT_NE(file.error().message.find("not a public one"), std::string::npos) << file.error().message;
  }
  for (const char* url : {"file:///etc/passwd", "gopher://127.0.0.1/", "http://", "no address"}) {
    const Result<std::string> file = (*fetcher)->fetch(url, nullptr);
    ASSERT_FALSE(file) << url;
    EXPECT_NE(file.error().message.find("could not be fetched"), std::string::npos) << file.error().message;
  }
}

TEST(Fetch, OptionsThatContradictAreNamed) {
  ServerOptions options;
  options.image_url_networks = {"10.0.0.0/8"};
  EXPECT_NE(validate(options).error().message.find("--allow-image-urls"), std::string::npos);
  options.allow_image_urls = true;
  EXPECT_TRUE(fetch_limits(options)->networks.contains(*IpAddress::parse("10.1.2.3")));
  options.image_url_networks = {"10.0.0.0/99"};
  EXPECT_NE(validate(options).error().message.find("--image-url-network"), std::string::npos);
}

}  // namespace
}  // namespace sluice::server
