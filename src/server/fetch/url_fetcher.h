// Fetches files by http(s) for requests that name pictures by address. Which machines a client may make the server talk
// to is decided by the address that a name resolves to at the moment of each connection, those of redirects included, so
// that no name, redirect or second resolution leads into a private network.
#pragma once

#include <memory>

#include "api/prompt/picture_fetcher.h"
#include "server/core/address.h"

namespace sluice::server {

// Whether an address is one of the public Internet: not private, shared, loopback, link-local, multicast, reserved or
// one that embeds an IPv4 address.
bool is_public(const IpAddress& address);

struct FetchLimits {
  NetworkList networks;           // further addresses that may be fetched from, beside the public ones
  int64_t most_bytes = 20 << 20;  // of a file
  double most_seconds = 10;       // from the first look-up to the last byte
  double connect_seconds = 5;     // of that, until a connection stands
  long most_redirects = 3;
};

// An error where the program was built without libcurl.
Result<std::unique_ptr<api::PictureFetcher>> make_url_fetcher(FetchLimits limits);

}  // namespace sluice::server
