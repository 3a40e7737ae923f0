// What can be said about the server on the command line.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "server/fetch/url_fetcher.h"

namespace sluice::server {

// Whose cached prefixes a request may meet.
enum class CacheIsolation : uint8_t {
  Auto,  // Key where there are two keys or more, else Off
  Off,   // everybody's
  Key,   // those of its own key; of its own address where there are no keys
};
enum class MetricsNames : uint8_t { Sluice, Vllm };
enum class AccessLog : uint8_t { Off, Unpolled, All };  // Unpolled: all but what probes and scrapers ask for

// What of a request a server does: prefill for others, decode what others prefilled, or both by itself.
enum class Role : uint8_t { Both, Prefill, Decode };
std::string_view name(Role role);  // "both"

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_keys;  // names of keys that may load and unload models
  bool insecure_no_auth = false;
  bool public_metrics = false;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  std::vector<std::string> trusted_proxies;  // CIDR blocks whose X-Forwarded-For is believed
  bool allow_image_urls = false;
  std::vector<std::string>
      image_url_networks;  // CIDR blocks that pictures may be fetched from beside public addresses
  bool any_model_name = false;
  CacheIsolation cache_isolation = CacheIsolation::Auto;

  int max_connections = 4096;
  int address_connections = 0;    // of one address; 0: half of all
  int max_body = 32 << 20;        // bytes
  int body_budget = 256 << 20;    // bytes of all bodies at once
  int answer_budget = 256 << 20;  // ... of what answers are made of
  double header_timeout = 10;     // seconds from a request's first byte to the end of its header
  double idle_timeout = 75;       // ... of a connection between two requests
  double body_grace = 10;         // ... before a body has to come at the least rate
  int body_rate = 1024;           // bytes a second
  double write_timeout = 60;      // ... without a byte taken by the reader
  double ping_interval = 15;
  double request_timeout = 0;            // 0: none
  int key_requests_per_minute = 0;       // 0: any number
  int key_concurrency = 0;               // sequences; 0: any number
  int key_tokens_per_minute = 0;         // 0: any number
  std::vector<std::string> key_weights;  // "NAME=W"
  double target_ttft = 0;                // seconds, of requests that name no deadline; 0: none
  int http_threads = 2;
  int prepare_threads = 2;
  double prepare_timeout = 10;  // seconds of the processor; 0: any number

  Role role = Role::Both;
  std::vector<std::string> prefill;  // of a server that decodes: "http://host:port" of those that prefill
  std::string prefill_key_file;      // its first line is the key that they are asked with
  double prefill_timeout = 10;       // seconds without a byte of theirs before the prompt is prefilled here

  double watchdog = 60;  // seconds a step may take; 0: any time
  double shutdown_timeout = 30;
  double drain_delay = 0;
  MetricsNames metrics_names = MetricsNames::Sluice;
  AccessLog access_log = AccessLog::Unpolled;

  void declare(OptionSet& options);
};

// Weights by names, each given as "NAME=W". Errors name the option.
Result<std::map<std::string, double>> parse_weights(std::string_view option,
                                                    const std::vector<std::string>& texts);
Result<std::map<std::string, double>> parse_key_weights(const std::vector<std::string>& texts);

// Of pictures that requests name by address. Errors name the option.
Result<FetchLimits> fetch_limits(const ServerOptions& options);

// What contradicts itself or would open the server to everybody unasked.
Status validate(const ServerOptions& options);

}  // namespace sluice::server
