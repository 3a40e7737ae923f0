// What the server counts about its own work, of any thread. Routes and status classes are closed sets.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/metrics.h"

namespace sluice::server {

// Why the server sent somebody away, or ended what it had begun.
enum class RejectReason : uint8_t {
  Connections,   // too many, or no file left for one
  Framing,       // bytes that are no request
  Slow,          // header or body came too slowly
  Host,          // or Origin not allowed
  Key,           // missing or wrong
  RateLimit,     // of a key
  Overload,      // queue full, or no room for the body
  Disconnected,  // the client went before its answer was complete
  Stalled,       // the client did not read
};
inline constexpr std::array<std::string_view, 9> kTroubleNames = {
    "connections", "framing", "slow", "host", "key", "rate_limit", "overload", "disconnected", "stalled"};

class HttpMetrics {
 public:
  explicit HttpMetrics(size_t routes) : answers_(routes + 1) {}

  // `route` is Router::index_of().
  void answered(size_t route, int status, double seconds);
  void troubled(RejectReason trouble) { troubles_[static_cast<size_t>(trouble)].add(); }

  engine::Counter connections_accepted, requests_ended;
  engine::Counter prefills_fetched, prefills_failed, prefills_served;  // prompts between servers with roles
  std::atomic<int64_t> connections{0}, requests{0}, jobs{0}, live_views{0}, body_bytes{0}, answer_bytes{0};

  uint64_t answers(size_t route, size_t status_class) const { return answers_[route][status_class].value(); }
  uint64_t troubles(RejectReason trouble) const { return troubles_[static_cast<size_t>(trouble)].value(); }
  const engine::Histogram& seconds() const { return seconds_; }

 private:
  std::vector<std::array<engine::Counter, 6>> answers_;  // [route][status / 100]
  std::array<engine::Counter, kTroubleNames.size()> troubles_;
  std::mutex mutex_;
  engine::Histogram seconds_;
};

}  // namespace sluice::server
