// Which names the server answers to and whose pages may call it: the defence against DNS rebinding and against pages of
// other sites that reach into a server on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace sluice::server {

struct GuardOptions {
  bool loopback = true;                    // bound to this machine alone: only its own names are right
  std::vector<std::string> allowed_hosts;  // further names, without port; "*": any
  std::vector<std::string> cors_origins;   // "https://example.com", or "*": any
  std::string machine;                     // this machine's own name; empty: none
};

// Whether requests must show a key, which a page that was led here by a false name does not have.
enum class Keys : uint8_t { None, Asked };

// Whether Host names this server: by a name of the loopback or one that is given. Where it is bound to other addresses
// and no names are given, any host is right if keys are asked for; else this machine's name and addresses, which no
// other site can take.
bool host_allowed(const GuardOptions& options, std::string_view host, Keys keys);

// What a browser's page of another site may do.
enum class Origin : uint8_t {
  None,    // no browser, or the same site
  Listed,  // of --cors-origin, or of the loopback: the answer says so
  Foreign,
};
Origin judge_origin(const GuardOptions& options, const RequestHead& head);

// Whether an address that a socket is bound to is this machine's alone.
bool is_loopback(std::string_view address);

}  // namespace sluice::server
