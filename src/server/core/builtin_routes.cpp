#include "server/core/builtin_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "api/core/errors.h"
#include "api/openai/models.h"
#include "base/json.h"
#include "base/version.h"
#include "kv/kv_manager.h"
#include "server/observe/metrics_text.h"

namespace sluice::server {

namespace {

Reply json_reply(int status, const json::object& object) {
  return {status, "application/json", write_json(object), {{"cache-control", "no-store"}}};
}

Reply health_reply(const ServerContext& state) {
  const HealthReport report = state.health();
  if (!report.healthy) return json_reply(503, {{"status", "unhealthy"}, {"reason", report.reason}});
  return json_reply(200, {{"status", state.loaded() ? "ok" : "loading"}});
}

Reply ready_reply(const ServerContext& state) {
  const Stage stage = state.stage();
  if (stage == Stage::Loading) return json_reply(503, {{"status", "loading"}});
  if (stage == Stage::Draining) return json_reply(503, {{"status", "draining"}});
  const HealthReport report = state.health();
  if (!report.healthy) return json_reply(503, {{"status", "unhealthy"}, {"reason", report.reason}});
  return json_reply(200, {{"status", "ready"}});
}

Reply version_reply() {
  const BuildInfo& info = build_info();
  return json_reply(200, {{"version", info.version}, {"commit", info.commit}});
}

// What a balancer wants to know, per model: 0 to 1 is the share of the KV cache in use.
Reply load_reply(const ServerContext& state) {
  json::array models;
  uint64_t running = 0, waiting = 0;
  const std::shared_ptr<const ModelSet> set = state.models();
  for (const Backend& backend : set->backends) {
    const engine::Metrics& metrics = backend.engine->metrics();
    const auto blocks = static_cast<double>(std::max<uint64_t>(1, metrics.kv_blocks.value()));
    running += metrics.running.value();
    waiting += metrics.waiting.value();
    models.push_back({{"id", backend.model.id},
                      {"running", metrics.running.value()},
                      {"waiting", metrics.waiting.value()},
                      {"kv_share", static_cast<double>(metrics.kv_used.value()) / blocks}});
  }
  return json_reply(200, {{"server_load", running + waiting}, {"models", std::move(models)}});
}

Reply model_ready_reply(const ServerContext& state, std::string_view name) {
  const std::shared_ptr<const ModelSet> set = state.models();
  const api::Call call{.models = set->models, .absent = set->absent};
  const api::ServedModel* model = name.empty() ? nullptr : api::find_model(call, name);
  if (model != nullptr && state.stage() == Stage::Serving && !set->backend_of(model).engine->health().failed)
    return json_reply(200, {{"name", model->id}, {"ready", true}});
  const bool known = std::any_of(set->absent.begin(), set->absent.end(),
                                 [&](const api::AbsentModel& absent) { return absent.id == name; });
  if (model == nullptr && !known) return error_reply(api::Dialect::Kserve, model_not_found(call, name), "");
  return json_reply(503, {{"name", json::string(name)}, {"ready", false}});
}

// What a router wants to know: the load, and which blocks a prompt can meet. Keys are 16 digits each, and left out where
// the query names their version: "MODEL=VERSION", with & between.
Reply prefixes_reply(const ServerContext& state, const OwnCall& call) {
  const std::shared_ptr<const ModelSet> set = state.models();
  json::array models;
  for (const Backend& backend : set->backends) {
    const engine::Metrics& metrics = backend.engine->metrics();
    const kv::KvManagerOptions& kv = backend.engine->kv_options();
    json::object model{{"id", backend.model.id},
                       {"kv_model", kv.model},
                       {"block_size", kv.block_size},
                       {"running", metrics.running.value()},
                       {"waiting", metrics.waiting.value()}};
    if (const auto published = backend.engine->published_keys()) {
      const std::string known = fmt::format("{}={}", backend.model.id, published->version);
      model["version"] = published->version;
      if (fmt::format("&{}&", call.query).find(fmt::format("&{}&", known)) == std::string::npos) {
        std::string keys;
        keys.reserve(published->keys.size() * 16);
        for (const uint64_t key : published->keys) fmt::format_to(std::back_inserter(keys), "{:016x}", key);
        model["keys"] = std::move(keys);
      }
    }
    models.push_back(std::move(model));
  }
  const Stage stage = state.stage();
  return json_reply(200, {{"stage", stage == Stage::Serving    ? "serving"
                                    : stage == Stage::Draining ? "draining"
                                                               : "loading"},
                          {"role", json::string(name(state.options().role))},
                          {"salt", state.cache_salt(call.client)},
                          {"models", std::move(models)}});
}

Reply index_reply(const ServerContext& state) {
  json::array out;
  if (const ModelRepository* repository = state.repository()) {
    for (const ModelRepository::Entry& entry : repository->index())
      out.push_back({{"name", entry.name},
                     {"version", "1"},
                     {"state", json::string(entry.state)},
                     {"reason", entry.reason}});
  }
  return {200, "application/json", write_json(out), {{"cache-control", "no-store"}}};
}

}  // namespace

Reply repository_reply(const Status& status, std::string_view request_id) {
  if (status) return json_reply(200, {});
  return error_reply(api::Dialect::Kserve, api::to_api_error(status.error()), request_id);
}

int64_t unix_nanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Reply own_reply(ServerContext& state, const OwnCall& call) {
  switch (call.route) {
    case OwnRoute::Health:
      return health_reply(state);
    case OwnRoute::Ready:
      return ready_reply(state);
    case OwnRoute::Version:
      return version_reply();
    case OwnRoute::Load:
      return load_reply(state);
    case OwnRoute::Metrics:
      return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(state), {}};
    case OwnRoute::OpenApi:
      return {200, "application/json", write_json(api::openapi()), {}};
    case OwnRoute::ModelReady:
      return model_ready_reply(state, call.rest);
    case OwnRoute::Prefixes:
      return prefixes_reply(state, call);
    case OwnRoute::Repository:
      return index_reply(state);
    case OwnRoute::Ping:
    case OwnRoute::Live:
    case OwnRoute::Prefill:
    case OwnRoute::LoadModel:
    case OwnRoute::UnloadModel:
      break;
  }
  return json_reply(200, {{"status", "ok"}});
}

Reply asset_reply(const Asset& asset, const RequestHead& head) {
  Reply reply{200, std::string(asset.content_type), "", {}};
  reply.fields = {{"etag", asset.etag},
                  {"cache-control", "no-cache"},
                  {"content-security-policy", std::string(kContentPolicy)},
                  {"referrer-policy", "no-referrer"},
                  {"x-frame-options", "DENY"},
                  {"cross-origin-resource-policy", "same-origin"},
                  {"cross-origin-opener-policy", "same-origin"}};
  const std::string* known = head.find("if-none-match");
  if (known != nullptr && known->find(asset.etag) != std::string::npos) {
    reply.status = 304;
    reply.content_type.clear();
  } else {
    reply.body = asset.bytes;
  }
  return reply;
}

}  // namespace sluice::server
