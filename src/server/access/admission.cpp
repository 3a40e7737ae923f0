#include "server/access/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/log.h"
#include "server/handover/kv_wire.h"

namespace sluice::server {

namespace {

constexpr size_t kIdBytes = 128;

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kIdBytes &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
             std::string_view::npos;
}

// The key that a request shows, wherever it shows it.
std::string_view presented_key(const RequestHead& head) {
  if (const std::string* authorization = head.find("authorization")) {
    const std::string_view text = *authorization;
    if (text.size() > 7 && equals_ignoring_case(text.substr(0, 7), "bearer ")) return trim(text.substr(7));
  }
  for (const char* name : {"x-api-key", "api-key"})
    if (const std::string* key = head.find(name)) return *key;
  return {};
}

bool is_json(const std::string& content_type) {
  const std::string_view type = content_type;
  if (!equals_ignoring_case(trim(type.substr(0, type.find(';'))), "application/json")) return false;
  const std::string lower = to_lower(type);
  const size_t charset = lower.find("charset=");
  return charset == std::string::npos || lower.find("utf-8", charset) != std::string::npos;
}

class Judge {
 public:
  Judge(ServerContext& state, const RequestHead& head, const ClientInfo& visitor)
      : state_(state), head_(head), visitor_(visitor) {}

  std::variant<Admission, Reply> run() {
    match_ = state_.router().match(head_.method, head_.path());
    if (auto refused = check_site()) return *std::move(refused);
    if (head_.method == "OPTIONS" && origin_ == Origin::Listed) return preflight();
    if (auto refused = check_key()) return *std::move(refused);
    if (match_.route == nullptr) return unknown();
    if (auto refused = check_admin()) return *std::move(refused);
    if (auto refused = check_prefill()) return *std::move(refused);
    if (auto refused = check_body()) return *std::move(refused);
    Admission admission{match_.route, std::move(match_.rest), client_, "", {}};
    if (origin_ == Origin::Listed) admission.origin = *head_.find("origin");
    if (auto refused = check_share(admission)) return *std::move(refused);
    return admission;
  }

 private:
  Reply refuse(int status, std::string type, std::string code, std::string message) const {
    return error_reply(dialect(), {status, std::move(type), std::move(code), "", std::move(message), 0},
                       visitor_.request_id);
  }

  api::Dialect dialect() const {
    return match_.route != nullptr ? match_.route->dialect : Router::dialect_of(head_.path());
  }

  bool is_page() const {
    return match_.route != nullptr && std::holds_alternative<const Asset*>(match_.route->target);
  }

  std::optional<Reply> check_site() {
    origin_ = judge_origin(state_.guards(), head_);
    const Keys asked = state_.keys()->empty() ? Keys::None : Keys::Asked;
    if (!head_.host.empty() && !host_allowed(state_.guards(), head_.host, asked)) {
      state_.metrics().troubled(RejectReason::Host);
      return refuse(403, "permission_error", "host_not_allowed",
                    "this server does not answer to the name in Host; --allowed-host adds names");
    }
    if (origin_ != Origin::Foreign || is_page()) return std::nullopt;
    state_.metrics().troubled(RejectReason::Host);
    return refuse(403, "permission_error", "origin_not_allowed",
                  "pages of other sites may not call this server; --cors-origin allows one");
  }

  // An answer to a browser that asks before it sends.
  Reply preflight() const {
    Reply reply{204, "", "", {}};
    reply.fields.emplace_back("access-control-allow-origin", *head_.find("origin"));
    reply.fields.emplace_back("vary", "origin");
    reply.fields.emplace_back("access-control-allow-methods", "GET, POST");
    if (const std::string* wanted = head_.find("access-control-request-headers"))
      reply.fields.emplace_back("access-control-allow-headers", *wanted);
    reply.fields.emplace_back("access-control-max-age", "600");
    return reply;
  }

  bool is_public() const {
    if (match_.route == nullptr) return false;
    const auto* own = std::get_if<OwnRoute>(&match_.route->target);
    const bool metrics = own != nullptr && *own == OwnRoute::Metrics && state_.options().public_metrics;
    return !match_.route->needs_key || metrics;
  }

  std::optional<Reply> check_key() {
    const std::shared_ptr<const KeyRing> keys = state_.keys();
    client_ = client_of(std::nullopt, visitor_.address);
    if (keys->empty()) return std::nullopt;
    for (const char* name : {"authorization", "x-api-key", "api-key"})
      if (head_.count(name) > 1)
        return refuse(400, "invalid_request_error", "bad_request",
                      fmt::format("'{}' is given more than once", name));
    const std::string_view presented = presented_key(head_);
    // Whoever guesses is held up whatever the key, or the time would tell a right one.
    if (!presented.empty() && !is_public())
      if (const auto late = state_.failures().exhausted(client_, Clock::now())) return throttled(*late);
    const std::optional<std::string> owner = presented.empty() ? std::nullopt : keys->find(presented);
    if (owner) client_ = client_of(owner, visitor_.address);
    owner_ = owner;
    if (owner || is_public()) return std::nullopt;
    state_.metrics().troubled(RejectReason::Key);
    if (!presented.empty()) note_wrong_key();
    Reply reply = refuse(401, "authentication_error", "invalid_api_key",
                         presented.empty() ? "this server needs a key: Authorization: Bearer KEY"
                                           : "the key is not one of this server's");
    reply.fields.emplace_back("www-authenticate", "Bearer");
    return reply;
  }

  std::optional<Reply> check_admin() const {
    if (!match_.route->needs_admin) return std::nullopt;
    const std::vector<std::string>& admins = state_.options().admin_keys;
    const bool known = std::find(admins.begin(), admins.end(), owner_.value_or("")) != admins.end();
    if (owner_ && known) return std::nullopt;
    return refuse(403, "permission_error", "not_admin",
                  owner_ ? fmt::format("the key '{}' may not load and unload models; --admin-key names those "
                                       "that may",
                                       *owner_)
                         : "loading and unloading models needs a key that --admin-key names");
  }

  bool is_prefill() const {
    const auto* own = std::get_if<OwnRoute>(&match_.route->target);
    return own != nullptr && *own == OwnRoute::Prefill;
  }

  // Who prefills may name any salt, and so meet every client's prefixes.
  std::optional<Reply> check_prefill() const {
    if (!is_prefill()) return std::nullopt;
    if (state_.options().role != Role::Prefill)
      return refuse(404, "not_found_error", "not_found",
                    "this server does not prefill for others: it was started without --role prefill");
    const std::vector<std::string>& admins = state_.options().admin_keys;
    if (state_.keys()->empty() ||
        std::find(admins.begin(), admins.end(), owner_.value_or("")) != admins.end())
      return std::nullopt;
    return refuse(403, "permission_error", "not_admin",
                  fmt::format("the key '{}' may not have prompts prefilled; --admin-key names those that may",
                              owner_.value_or("")));
  }

  Reply throttled(const ClientLimits::Refused& late) const {
    state_.metrics().troubled(RejectReason::Key);
    return error_reply(dialect(),
                       {429, "rate_limit_error", "rate_limit_exceeded", "",
                        "too many wrong keys from this address", late.retry_after_s},
                       visitor_.request_id);
  }

  void note_wrong_key() const {
    const TimePoint now = Clock::now();
    state_.failures().admit(client_, now);
    if (!state_.failures().exhausted(client_, now)) return;
    const auto turn = state_.failure_notes().admit(client_, now);
    if (std::holds_alternative<ClientLimits::Lease>(turn))
      log_warning("too many wrong keys from {}: for a while its requests get 429, whatever their key",
                  visitor_.address.text());
  }

  Reply unknown() const {
    if (match_.allow.empty())
      return refuse(404, "not_found_error", "not_found", "there is nothing at this path");
    Reply reply = refuse(405, "invalid_request_error", "method_not_allowed",
                         fmt::format("this path allows {}", match_.allow));
    reply.fields.emplace_back("allow", match_.allow);
    return reply;
  }

  std::optional<Reply> check_body() const {
    if (head_.find("content-encoding") != nullptr &&
        !equals_ignoring_case(*head_.find("content-encoding"), "identity"))
      return refuse(415, "invalid_request_error", "unsupported_media_type", "bodies must not be compressed");
    if (match_.route->method != "POST") return std::nullopt;
    // Ollama and Triton read any body as JSON, and their clients name no type. Pages of other sites are kept out by their
    // origin.
    const api::Dialect dialect = match_.route->dialect;
    if (dialect == api::Dialect::Ollama || dialect == api::Dialect::Kserve) return std::nullopt;
    const std::string* type = head_.find("content-type");
    if (is_prefill()) {
      if (type != nullptr && *type == kKvContentType) return std::nullopt;
      return refuse(415, "invalid_request_error", "unsupported_media_type",
                    fmt::format("an order must be sent as 'Content-Type: {}'", kKvContentType));
    }
    if (type != nullptr && head_.count("content-type") == 1 && is_json(*type)) return std::nullopt;
    return refuse(415, "invalid_request_error", "unsupported_media_type",
                  "a body must be sent as 'Content-Type: application/json'");
  }

  std::optional<Reply> check_deadline(Admission& admission) const {
    if (state_.options().target_ttft > 0)
      admission.first_token_within = Seconds(state_.options().target_ttft);
    const std::string* text = head_.find("x-request-deadline");
    if (text == nullptr) return std::nullopt;
    const std::optional<double> seconds =
        head_.count("x-request-deadline") == 1 ? parse_deadline(*text) : std::nullopt;
    if (!seconds)
      return refuse(400, "invalid_request_error", "invalid_deadline",
                    "x-request-deadline must be decimal seconds from the request to its first token, as 2.5");
    admission.first_token_within = Seconds(*seconds);
    return std::nullopt;
  }

  // Of the machine: nothing while it loads or drains, and no more than the client's part.
  std::optional<Reply> check_share(Admission& admission) {
    if (!std::holds_alternative<const api::Operation*>(match_.route->target)) return std::nullopt;
    if (!state_.loaded())
      return error_reply(dialect(),
                         {503, "server_error", "model_loading", "", "the model is being loaded", 2},
                         visitor_.request_id);
    if (state_.refusing())
      return error_reply(dialect(), overloaded("the server is shutting down"), visitor_.request_id);
    if (match_.route->method != "POST") return std::nullopt;
    if (auto refused = check_deadline(admission)) return refused;
    if (state_.overloaded(client_)) {
      state_.metrics().troubled(RejectReason::Overload);
      return error_reply(dialect(), overloaded("too many requests are waiting"), visitor_.request_id);
    }
    auto turn = state_.limits().admit(client_, Clock::now());
    if (auto* late = std::get_if<ClientLimits::Refused>(&turn)) {
      state_.metrics().troubled(RejectReason::RateLimit);
      return error_reply(
          dialect(),
          {429, "rate_limit_error", "rate_limit_exceeded", "", std::move(late->message), late->retry_after_s},
          visitor_.request_id);
    }
    admission.lease = std::get<ClientLimits::Lease>(std::move(turn));
    return std::nullopt;
  }

  ServerContext& state_;
  const RequestHead& head_;
  const ClientInfo& visitor_;
  Match match_;
  Origin origin_ = Origin::None;
  std::string client_;
  std::optional<std::string> owner_;  // of the key
};

// What a fault of framing is called.
struct FaultName {
  int status;
  std::string_view code;
};
constexpr auto kFaultNames = std::to_array<FaultName>({
    {408, "request_timeout"},
    {413, "request_too_large"},
    {414, "target_too_long"},
    {417, "expectation_failed"},
    {431, "header_too_large"},
    {501, "not_implemented"},
    {505, "http_version_not_supported"},
});

}  // namespace

std::optional<double> parse_deadline(std::string_view text) {
  constexpr size_t kMostDigits = 9;
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::string_view part = point == text.size() ? std::string_view("0") : text.substr(point + 1);
  const auto digits = [](std::string_view some) {
    return !some.empty() && some.size() <= kMostDigits &&
           some.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!digits(whole) || !digits(part)) return std::nullopt;
  return std::stod(std::string(text));
}

std::string client_of(const std::optional<std::string>& owner, const IpAddress& address) {
  return owner ? *owner : address.client();
}

std::variant<Admission, Reply> authorize(ServerContext& state, const RequestHead& head,
                                         const ClientInfo& visitor) {
  return Judge(state, head, visitor).run();
}

Reply error_reply(api::Dialect dialect, const api::ApiError& error, std::string_view request_id) {
  Reply reply{
      api::status_of(dialect, error), "application/json", api::write_error(dialect, error, request_id), {}};
  if (error.retry_after_s > 0) reply.fields.emplace_back("retry-after", std::to_string(error.retry_after_s));
  return reply;
}

Reply fault_reply(const HttpFault& fault, std::string_view request_id) {
  std::string_view code = "bad_request";
  for (const FaultName& name : kFaultNames)
    if (name.status == fault.status) code = name.code;
  return error_reply(api::Dialect::OpenAi,
                     {fault.status, "invalid_request_error", std::string(code), "", fault.message, 0},
                     request_id);
}

// Clients that were sent away together shall not come back together.
api::ApiError overloaded(std::string message) {
  static thread_local std::minstd_rand jitter{std::random_device{}()};
  const int wait = 1 + static_cast<int>(jitter() % 4);
  return {503, "server_error", "server_is_overloaded", "", std::move(message), wait};
}

std::string request_id_of(const RequestHead* head) {
  if (head != nullptr)
    if (const std::string* given = head->find("x-request-id"); given != nullptr && is_id(*given))
      return *given;
  static thread_local std::mt19937_64 random{(uint64_t{std::random_device{}()} << 32) ^
                                             std::random_device{}()};
  return fmt::format("req_{:016x}{:08x}", random(), random() & 0xFFFFFFFF);
}

}  // namespace sluice::server
