#include "server/core/options.h"

#include <fmt/format.h>

#include <charconv>

#include "server/access/guards.h"
#include "server/core/address.h"
#include "server/handover/prefill_peers.h"

namespace sluice::server {

namespace {

void declare_access(ServerOptions& o, OptionSet& options) {
  options.add(o.host, "host", "address to listen on").shown_as("ADDRESS");
  options.add(o.port, "port", "port to listen on; 0: any free one, which is printed").within(0, 65535);
  options.add(o.api_keys, "api-key", "key that clients must show, as KEY or NAME:KEY; may be repeated")
      .shown_as("KEY");
  options.add(o.api_key_file, "api-key-file", "file with one key a line; read again on SIGHUP")
      .shown_as("FILE");
  options
      .add(o.admin_keys, "admin-key",
           "name of a key that may load and unload models while the server runs; may be repeated")
      .shown_as("NAME");
  options.add(o.insecure_no_auth, "insecure-no-auth", "listen on a public address without any key");
  options.add(o.public_metrics, "public-metrics", "/metrics needs no key");
  options.add(o.allowed_hosts, "allowed-host", "further name that Host may hold; may be repeated, '*': any")
      .shown_as("NAME");
  options.add(o.cors_origins, "cors-origin", "site whose pages may call the API; may be repeated, '*': any")
      .shown_as("ORIGIN");
  options
      .add(o.trusted_proxies, "trusted-proxy",
           "network of proxies whose X-Forwarded-For names the client, as CIDR; may be repeated")
      .shown_as("CIDR");
  options.add_choice<CacheIsolation>(
      o.cache_isolation, "cache-isolation",
      "whose cached prefixes a request may meet; auto: its own key's where there are two keys or more",
      {{"auto", CacheIsolation::Auto}, {"none", CacheIsolation::Off}, {"key", CacheIsolation::Key}});
  options.add(o.allow_image_urls, "allow-image-urls",
              "fetch pictures that requests name by http(s) address, from public addresses");
  options
      .add(o.image_url_networks, "image-url-network",
           "network that pictures may be fetched from beside public addresses, as CIDR; may be repeated")
      .shown_as("CIDR");
  options.add(o.any_model_name, "any-model-name", "unknown model names mean the first model");
}

void declare_limits(ServerOptions& o, OptionSet& options) {
  options.add(o.max_connections, "max-connections", "connections at once").within(1, 1'000'000);
  options
      .add(o.address_connections, "max-connections-per-address",
           "connections of one address at once; 0: half of all")
      .within(0, 1'000'000);
  options.add(o.max_body, "max-body", "bytes of a request's body").within(1024, 1 << 30);
  options.add(o.body_budget, "body-budget", "bytes of all bodies at once").within(1024, 2147483647);
  options.add(o.answer_budget, "answer-budget", "bytes held for all answers that are being made")
      .within(1024, 2147483647);
  options.add(o.header_timeout, "header-timeout", "seconds in which a header must come").within(0.1, 3600);
  options.add(o.idle_timeout, "idle-timeout", "seconds a connection may be idle between requests")
      .within(0.1, 86400);
  options.add(o.body_grace, "body-grace", "seconds before a body must come at the least rate")
      .within(0.1, 3600);
  options.add(o.body_rate, "body-rate", "least bytes a second of a body").within(1, 1 << 30);
  options.add(o.write_timeout, "write-timeout", "seconds a reader may stall before it is dropped")
      .within(0.1, 86400);
  options.add(o.ping_interval, "ping-interval", "seconds of silence after which a stream says ': ping'")
      .within(0.1, 3600);
  options.add(o.request_timeout, "request-timeout", "seconds a request may take; 0: any time")
      .within(0, 86400);
  options
      .add(
          o.key_requests_per_minute, "key-requests-per-minute",
          "requests a minute of one key, or address where there are no keys, each prompt and choice counted; "
          "0: any number")
      .within(0, 1'000'000);
  options
      .add(o.key_concurrency, "key-concurrency",
           "sequences (prompts times choices) of one key at once; 0: any number")
      .within(0, 1'000'000);
  options
      .add(o.key_tokens_per_minute, "key-tokens-per-minute",
           "tokens of prompts and answers a minute of one key; 0: any number")
      .within(0, 2'000'000'000);
  options.add(o.key_weights, "key-weight", "share of a key beside those of weight 1; may be repeated")
      .shown_as("NAME=W");
  options
      .add(o.target_ttft, "target-ttft",
           "seconds to the first token, as deadline of requests that name none; 0: none")
      .within(0, 86400);
  options.add(o.http_threads, "http-threads", "threads that serve connections").within(1, 64);
  options.add(o.prepare_threads, "prepare-threads", "requests that are read and rendered to prompts at once")
      .within(1, 64);
  options
      .add(o.prepare_timeout, "prepare-timeout",
           "seconds of the processor that reading one request may take; 0: any time")
      .within(0, 3600);
}

void declare_role(ServerOptions& o, OptionSet& options) {
  options.add_choice<Role>(
      o.role, "role",
      "prefill: also compute prompts for servers that decode; decode: have the servers of --prefill-server "
      "compute "
      "prompts and go on from their KV blocks; both: each request here, from its prompt to its end",
      {{"both", Role::Both}, {"prefill", Role::Prefill}, {"decode", Role::Decode}});
  options
      .add(o.prefill, "prefill-server",
           "with --role decode: server that computes prompts, as http://HOST:PORT; may be repeated")
      .shown_as("URL");
  options
      .add(o.prefill_key_file, "prefill-server-key-file",
           "file whose first line is the key for the servers of --prefill-server; there it must be of "
           "--admin-key")
      .shown_as("FILE");
  options
      .add(o.prefill_timeout, "prefill-server-timeout",
           "seconds without a byte of a server of --prefill-server before the rest of a prompt is computed "
           "here")
      .within(0.1, 3600);
}

Status check_role(const ServerOptions& options) {
  const bool decode = options.role == Role::Decode;
  if (decode && options.prefill.empty())
    return Error{ErrorCode::InvalidArgument,
                 "--role decode needs a server that computes prompts: --prefill-server http://HOST:PORT"};
  if (!decode && (!options.prefill.empty() || !options.prefill_key_file.empty()))
    return Error{ErrorCode::InvalidArgument,
                 "--prefill-server and --prefill-server-key-file are for --role decode"};
  const Result<PrefillPeers> peers = PrefillPeers::make(options.prefill, options.prefill_key_file);
  return peers ? Status() : peers.error();
}

}  // namespace

std::string_view name(Role role) {
  return role == Role::Both ? "both" : role == Role::Prefill ? "prefill" : "decode";
}

void ServerOptions::declare(OptionSet& options) {
  declare_access(*this, options);
  declare_limits(*this, options);
  declare_role(*this, options);
  options
      .add(watchdog, "watchdog", "seconds without a step after which a busy engine counts as hung; 0: never")
      .within(0, 86400);
  options.add(shutdown_timeout, "shutdown-timeout", "seconds that running requests get on SIGTERM")
      .within(0, 86400);
  options.add(drain_delay, "drain-delay", "seconds to go on accepting after SIGTERM, for load balancers")
      .within(0, 3600);
  options.add_choice<MetricsNames>(metrics_names, "metrics-names",
                                   "names in /metrics: our own, or vLLM's beside them",
                                   {{"sluice", MetricsNames::Sluice}, {"vllm", MetricsNames::Vllm}});
  options.add_choice<AccessLog>(
      access_log, "access-log", "a line a request; on: none for /health, /ready, /ping, /load and /metrics",
      {{"on", AccessLog::Unpolled}, {"off", AccessLog::Off}, {"all", AccessLog::All}});
}

Result<std::map<std::string, double>> parse_key_weights(const std::vector<std::string>& texts) {
  return parse_weights("--key-weight", texts);
}

Result<std::map<std::string, double>> parse_weights(std::string_view option,
                                                    const std::vector<std::string>& texts) {
  constexpr double kLeast = 0.01, kMost = 1000;
  std::map<std::string, double> weights;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
    double weight = 0;
    const auto end = number.data() + number.size();
    const auto [stop, fault] = std::from_chars(number.data(), end, weight);
    const bool sound =
        equals > 0 && fault == std::errc{} && stop == end && weight >= kLeast && weight <= kMost;
    if (!sound)
      return Error{ErrorCode::InvalidArgument, fmt::format("{} '{}' must be NAME=W with a weight of {} to {}",
                                                           option, text, kLeast, kMost)};
    weights[text.substr(0, equals)] = weight;
  }
  return weights;
}

Result<FetchLimits> fetch_limits(const ServerOptions& options) {
  Result<NetworkList> networks = NetworkList::parse(options.image_url_networks);
  if (!networks)
    return Error{networks.error().code, fmt::format("--image-url-network: {}", networks.error().message)};
  if (!networks->empty() && !options.allow_image_urls)
    return Error{ErrorCode::InvalidArgument, "--image-url-network is given without --allow-image-urls"};
  return FetchLimits{.networks = *std::move(networks)};
}

Status validate(const ServerOptions& options) {
  if (const auto weights = parse_key_weights(options.key_weights); !weights) return weights.error();
  const bool keys = !options.api_keys.empty() || !options.api_key_file.empty();
  if (!is_loopback(options.host) && !keys && !options.insecure_no_auth)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--host {} can be reached by others and there is no key; give --api-key or "
                             "--api-key-file, or say --insecure-no-auth",
                             options.host)};
  for (const std::string& name : options.allowed_hosts) {
    if (name == "*" || is_host(name)) continue;
    return Error{ErrorCode::InvalidArgument, fmt::format("--allowed-host '{}' is no host name", name)};
  }
  if (const Result<NetworkList> proxies = NetworkList::parse(options.trusted_proxies); !proxies)
    return Error{proxies.error().code, fmt::format("--trusted-proxy: {}", proxies.error().message)};
  if (const Result<FetchLimits> limits = fetch_limits(options); !limits) return limits.error();
  if (Status role = check_role(options); !role) return role;
  if (options.allow_image_urls)
    if (const auto fetcher = make_url_fetcher({}); !fetcher) return fetcher.error();
  for (const std::string& origin : options.cors_origins) {
    if (origin == "*" || origin.starts_with("http://") || origin.starts_with("https://")) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--cors-origin '{}' does not begin with http:// or https://", origin)};
  }
  return {};
}

}  // namespace sluice::server
