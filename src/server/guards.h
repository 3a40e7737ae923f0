// Which names the server answers to and whose pages may call it: the defence against DNS rebinding and against pages of
// other sites that reach into a server on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace sluice::server {

struct GuardOptions {
  bool loopback = true;                    // bound to this machine alone: only its own names are right
  std::vector<std::string> allowed_hosts;  // further names, without port; "*": any
  std::vector<std::string> cors_origins;   // "https://example.com", or "*": any
};

// Whether Host names this server. Where it is bound to other addresses and no names are given, any host is right.
bool host_allowed(const GuardOptions& options, std::string_view host);

// What a browser's page of another site may do.
enum class Origin : uint8_t {
  None,    // no browser, or the same site
  Listed,  // of --cors-origin: the answer says so
  Foreign,
};
Origin judge_origin(const GuardOptions& options, const RequestHead& head);

// Whether an address that a socket is bound to is this machine's alone.
bool is_loopback(std::string_view address);

}  // namespace sluice::server
