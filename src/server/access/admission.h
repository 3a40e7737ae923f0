// May this request come in? Judged by its head alone, before a byte of its body is read.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/core/address.h"
#include "server/core/server_context.h"
#include "server/http/http.h"

namespace sluice::server {

// A whole answer that needs no engine.
struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> fields;
};

struct ClientInfo {
  std::string request_id;
  IpAddress address;  // behind trusted proxies
};

// What was let in.
struct Admission {
  const Route* route = nullptr;
  std::string rest;    // of the path
  std::string client;  // client_of()
  std::string origin;  // to be named in the answer; empty: none
  ClientLimits::Lease lease;
  std::optional<Seconds> first_token_within;  // of its receipt
};

// Decimal seconds, as x-request-deadline has them: "2", "0.25". Nothing where it is anything else.
std::optional<double> parse_deadline(std::string_view text);

// Who a request is counted as, in limits, logs and the scheduler's shares: the owner of its key, else its address.
std::string client_of(const std::optional<std::string>& owner, const IpAddress& address);

// Keys are asked for by the matched route; a path without one is closed to those without a key.
std::variant<Admission, Reply> authorize(ServerContext& state, const RequestHead& head,
                                         const ClientInfo& visitor);

// An error in a dialect, with its status and Retry-After.
Reply error_reply(api::Dialect dialect, const api::ApiError& error, std::string_view request_id);
Reply fault_reply(const HttpFault& fault, std::string_view request_id);
api::ApiError overloaded(std::string message);

// The client's own id where it is 1 to 128 letters, digits, ".-_"; else a new one.
std::string request_id_of(const RequestHead* head);

}  // namespace sluice::server
