#include "server/core/server_context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace sluice::server {

namespace {

// Wrong keys that one address may show in a minute before it has to wait.
constexpr int kFailuresPerMinute = 60;
// Where every core computes tokens these threads get what steps leave of the cores, and little more: a prompt of that many
// bytes, or its grammar, takes much longer than its reading. Every tick of a core that they get makes a step wait.
constexpr size_t kLargeBody = size_t{32} << 10;
constexpr int kLargeBodyNiceness = 19;

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::vector<api::ServedModel> models_of(const std::vector<Backend>& backends) {
  std::vector<api::ServedModel> out;
  for (const Backend& backend : backends) out.push_back(backend.model);
  return out;
}

// REQUIRES: options that validate() lets pass
std::unique_ptr<api::PictureFetcher> make_fetcher(const ServerOptions& options) {
  if (!options.allow_image_urls) return nullptr;
  return *make_url_fetcher(*fetch_limits(options));
}

}  // namespace

ModelSet::ModelSet(std::vector<Backend> served, std::vector<api::AbsentModel> missing)
    : backends(std::move(served)), models(models_of(backends)), absent(std::move(missing)) {}

const Backend& ModelSet::backend_of(const api::ServedModel* model) const {
  const auto index = static_cast<size_t>(model - models.data());
  SLUICE_CHECK_LT(index, backends.size());
  return backends[index];
}

void HttpMetrics::answered(size_t route, int status, double seconds) {
  answers_[route][static_cast<size_t>(status / 100) % 6].add();
  const std::lock_guard lock(mutex_);
  seconds_.record(seconds);
}

ServerContext::ServerContext(ServerOptions options, KeyRing keys, std::vector<api::Operation> operations,
                             std::vector<Asset> assets)
    : options_(std::move(options)),
      guards_{is_loopback(options_.host), options_.allowed_hosts, options_.cors_origins, machine_name()},
      proxies_(*NetworkList::parse(options_.trusted_proxies)),
      fetcher_(make_fetcher(options_)),
      prefill_peers_(*PrefillPeers::make(options_.prefill, options_.prefill_key_file)),
      operations_(std::move(operations)),
      assets_(std::move(assets)),
      router_(operations_, assets_),
      metrics_(router_.routes().size()),
      weights_(*parse_key_weights(options_.key_weights)),
      limits_({options_.key_requests_per_minute, options_.key_concurrency, options_.key_tokens_per_minute}),
      failures_({kFailuresPerMinute, 0}),
      failure_notes_({1, 0}),
      keys_(std::make_shared<const KeyRing>(std::move(keys))),
      preparation_({.slots = options_.prepare_threads, .time_limit = options_.prepare_timeout}),
      large_preparation_({.slots = options_.prepare_threads,
                          .time_limit = options_.prepare_timeout,
                          .niceness = kLargeBodyNiceness}) {}

// Fields of pictures are named so in all dialects, and seldom anything else is.
bool ServerContext::takes_long(std::string_view body) {
  return body.size() > kLargeBody || body.find("\"image") != body.npos ||
         body.find("\"input_image\"") != body.npos;
}

void ServerContext::stop_preparation() {
  preparation_.stop();
  large_preparation_.stop();
}

void ServerContext::run_on_preparation(void (*work)()) {
  preparation_.run_on_idle(work);
  large_preparation_.run_on_idle(work);
}

std::shared_ptr<const KeyRing> ServerContext::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

double ServerContext::weight_of(const std::string& client) const {
  const auto found = weights_.find(client);
  return found == weights_.end() ? 1 : found->second;
}

std::string ServerContext::cache_salt(const std::string& client) const {
  const CacheIsolation wanted = options_.cache_isolation;
  const bool isolated =
      wanted == CacheIsolation::Key || (wanted == CacheIsolation::Auto && keys()->size() > 1);
  return isolated ? client : "";
}

Status ServerContext::reload_keys() {
  Result<KeyRing> fresh = KeyRing::make({options_.api_keys, options_.api_key_file});
  if (!fresh) return fresh.error();
  const std::lock_guard lock(mutex_);
  if (fresh->empty() && !keys_->empty())
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("key file '{}' holds no key any more; only a restart opens the server to everybody",
                    options_.api_key_file)};
  keys_ = std::make_shared<const KeyRing>(std::move(*fresh));
  return {};
}

void ServerContext::set_models(std::shared_ptr<const ModelSet> models) {
  const std::lock_guard lock(mutex_);
  models_.swap(models);  // what is let go ends after the lock
  loaded_ = true;
}

std::shared_ptr<const ModelSet> ServerContext::models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

bool ServerContext::overloaded(const std::string& client) const {
  const std::shared_ptr<const ModelSet> set = models();
  if (set->backends.empty()) return false;
  return std::all_of(set->backends.begin(), set->backends.end(), [&](const Backend& backend) {
    return backend.queue_requests > 0 && !backend.engine->has_place(client, weight_of(client));
  });
}

HealthReport ServerContext::health() const {
  if (!loaded_) return {};
  const double stalled = std::max(preparation_.stalled(), large_preparation_.stalled());
  if (options_.watchdog > 0 && stalled > options_.watchdog)
    return {false, false, fmt::format("a request is being read without progress for {:.0f} s", stalled)};
  const std::shared_ptr<const ModelSet> set = models();
  for (const Backend& backend : set->backends) {
    const engine::Health health = backend.engine->health();
    if (health.failed)
      return {false, true, fmt::format("the engine of {} failed: {}", backend.model.id, health.reason)};
    if (options_.watchdog > 0 && health.busy && health.idle_s > options_.watchdog)
      return {false, false,
              fmt::format("the engine of {} ended no step for {:.0f} s", backend.model.id, health.idle_s)};
  }
  return {};
}

}  // namespace sluice::server
