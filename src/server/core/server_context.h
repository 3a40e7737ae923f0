// What all connections of a server share. Of any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/core/service.h"
#include "base/clock.h"
#include "base/system/gpu_monitor.h"
#include "engine/engine.h"
#include "server/access/client_limits.h"
#include "server/access/guards.h"
#include "server/access/keys.h"
#include "server/core/address.h"
#include "server/core/options.h"
#include "server/core/prepare_pool.h"
#include "server/core/router.h"
#include "server/handover/prefill_peers.h"
#include "server/http/assets.h"
#include "server/observe/http_metrics.h"

namespace sluice::server {

// A model with the engine that runs it.
struct Backend {
  // What model and engine belong to; empty: they outlive the server. The first member: it goes last.
  std::shared_ptr<void> owner;
  api::ServedModel model;
  engine::Engine* engine = nullptr;
  // For people: /api/live shows them.
  std::string device, scheme, layout;
  int block_size = 0, max_sequences = 0, max_step_tokens = 0, kv_tokens = 0;
  int64_t kv_bytes = 0;
  std::function<std::optional<GpuStats>()> gpu;  // of the GPU it runs on; empty: no GPU
  // The engine's own limit, to send requests away before they are read; 0: unknown.
  size_t queue_requests = 0;
};

// The models that are served at one moment. Never changed: whoever works with a model holds the set it is in.
struct ModelSet {
  explicit ModelSet(std::vector<Backend> served, std::vector<api::AbsentModel> missing = {});

  // REQUIRES: model is one of models
  const Backend& backend_of(const api::ServedModel* model) const;

  const std::vector<Backend> backends;
  const std::vector<api::ServedModel> models;  // of the backends, in their order
  const std::vector<api::AbsentModel> absent;
};

enum class Stage : uint8_t { Loading, Serving, Draining };

struct HealthReport {
  bool healthy = true;
  bool lost = false;  // an engine failed for good: only a new process helps
  std::string reason;
};

// Which models there are to be loaded. Of any thread.
class ModelRepository {
 public:
  virtual ~ModelRepository() = default;
  struct Entry {
    std::string name;
    std::string_view state;  // Triton's words: READY, LOADING, UNLOADING, UNAVAILABLE
    std::string reason;      // where it is UNAVAILABLE
  };
  virtual std::vector<Entry> index() const = 0;
  // `done` is called once, at once or from another thread. Both are done in the order in which they are asked for.
  using Done = std::function<void(Status)>;
  virtual void load(const std::string& name, Done done) = 0;
  virtual void unload(const std::string& name, Done done) = 0;
};

class ServerContext {
 public:
  // REQUIRES: options that validate() lets pass
  ServerContext(ServerOptions options, KeyRing keys, std::vector<api::Operation> operations,
                std::vector<Asset> assets);

  const ServerOptions& options() const { return options_; }
  const GuardOptions& guards() const { return guards_; }
  const NetworkList& proxies() const { return proxies_; }
  const api::PictureFetcher* fetcher() const { return fetcher_.get(); }  // null: pictures are not fetched
  const PrefillPeers& prefill_peers() const { return prefill_peers_; }
  const Router& router() const { return router_; }
  HttpMetrics& metrics() { return metrics_; }
  ClientLimits& limits() { return limits_; }
  ClientLimits& failures() { return failures_; }            // wrong keys, by address
  ClientLimits& failure_notes() { return failure_notes_; }  // lines of log about them
  // Who reads a request with such a body.
  PreparePool& preparation(std::string_view body) {
    return takes_long(body) ? large_preparation_ : preparation_;
  }
  // Ends the reading of all requests. REQUIRES: none comes any more.
  void stop_preparation();
  // On every thread of theirs that has nothing to do.
  void run_on_preparation(void (*work)());
  double uptime() const { return seconds_since(start_); }
  TimePoint start() const { return start_; }

  std::shared_ptr<const KeyRing> keys() const;
  // Of a client's share: a key's where one was given, else 1.
  double weight_of(const std::string& client) const;
  // Keeps the cached prefixes of a client apart from those of others; empty: they are shared.
  std::string cache_salt(const std::string& client) const;
  // Reads the keys again; on an error, or where there were keys and are none any more, the old ones stay.
  Status reload_keys();

  Stage stage() const { return draining_ ? Stage::Draining : loaded_ ? Stage::Serving : Stage::Loading; }
  // Not ready any more, though still serving.
  void set_draining() { draining_ = true; }
  // New requests are sent away; those that run go on.
  void set_refusing() { refusing_ = true; }
  bool refusing() const { return refusing_; }
  // What is served from now on; the first call ends the loading.
  void set_models(std::shared_ptr<const ModelSet> models);
  bool loaded() const { return loaded_; }
  // Never null; empty while loading.
  std::shared_ptr<const ModelSet> models() const;
  // Who loads and unloads; outlives the server. Null: nobody.
  void set_repository(ModelRepository* repository) { repository_ = repository; }
  ModelRepository* repository() const { return repository_; }

  // No engine's queue has a place for another request of the client.
  bool overloaded(const std::string& client) const;
  // By progress, not by life: a busy engine that ended no step for a while is not healthy, nor is a request that is
  // read for as long without a sign of life.
  HealthReport health() const;

 private:
  const ServerOptions options_;
  const GuardOptions guards_;
  const NetworkList proxies_;
  const std::unique_ptr<api::PictureFetcher> fetcher_;
  const PrefillPeers prefill_peers_;
  const std::vector<api::Operation> operations_;
  const std::vector<Asset> assets_;
  const Router router_;
  HttpMetrics metrics_;
  const std::map<std::string, double> weights_;  // of keys, by name
  ClientLimits limits_, failures_, failure_notes_;
  const TimePoint start_ = Clock::now();
  std::atomic<bool> draining_{false}, refusing_{false}, loaded_{false};
  std::atomic<ModelRepository*> repository_{nullptr};
  mutable std::mutex mutex_;
  std::shared_ptr<const KeyRing> keys_;
  std::shared_ptr<const ModelSet> models_ = std::make_shared<const ModelSet>(std::vector<Backend>());
  // Large bodies and pictures, which take milliseconds, give way to the threads that compute tokens: their prompts take
  // longer, or their grammars or towers do.
  static bool takes_long(std::string_view body);
  PreparePool preparation_, large_preparation_;
};

}  // namespace sluice::server
