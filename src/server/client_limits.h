// How much each client may ask for: requests a minute, and requests at once.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/clock.h"

namespace sluice::server {

struct ClientLimitOptions {
  int requests_per_minute = 0;  // 0: any number
  int concurrency = 0;          // 0: any number
};

// Of any thread. Clients that have nothing running and whose minute is over are forgotten, so that memory is bounded by
// the requests of a minute; beyond a number of clients new ones share one place.
class ClientLimits {
 public:
  explicit ClientLimits(ClientLimitOptions options) : options_(options) {}

  // Counts as a running request until it is destroyed; the limits outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(ClientLimits* limits, std::string client) : limits_(limits), client_(std::move(client)) {}
    Lease(Lease&& other) noexcept
        : limits_(std::exchange(other.limits_, nullptr)), client_(std::move(other.client_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(limits_, other.limits_);
      std::swap(client_, other.client_);
      return *this;
    }
    ~Lease();

   private:
    ClientLimits* limits_ = nullptr;
    std::string client_;
  };
  struct Refused {
    std::string message;
    int retry_after_s = 1;
  };

  std::variant<Lease, Refused> admit(const std::string& client, TimePoint now);
  // Whether a request would be refused for the requests of the last minute; counts nothing. False for clients that are
  // not known.
  std::optional<Refused> exhausted(const std::string& client, TimePoint now) const;
  size_t known() const;

 private:
  struct Client {
    double allowance = 0;  // requests that may come at once
    TimePoint seen{};
    int running = 0;
  };
  double allowance_of(const Client& client, TimePoint now) const;
  Refused wait_of(double allowance) const;
  void release(const std::string& client);
  void forget_idle(TimePoint now);

  ClientLimitOptions options_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Client> clients_;
  TimePoint swept_{};
};

}  // namespace sluice::server
