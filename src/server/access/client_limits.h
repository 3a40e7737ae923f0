// How much each client may ask for: sequences a minute and at once, and tokens a minute. A prompt counts as one sequence for
// each of its choices or beams, however many of them come in one request.
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
  int requests_per_minute = 0;  // counted in sequences; 0: any number, as the others
  int concurrency = 0;          // sequences
  int tokens_per_minute = 0;    // of prompts and answers
};

// Of any thread. Clients that have nothing running and whose minute is over are forgotten, so that memory is bounded by
// the requests of a minute; beyond a number of clients new ones share one place.
class ClientLimits {
 public:
  explicit ClientLimits(ClientLimitOptions options) : options_(options) {}

  struct Refused {
    std::string message;
    int retry_after_s = 1;
  };
  // Counts as running sequences, at first one, until it is destroyed; the limits outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(ClientLimits* limits, std::string client) : limits_(limits), client_(std::move(client)) {}
    Lease(Lease&& other) noexcept
        : limits_(std::exchange(other.limits_, nullptr)),
          client_(std::move(other.client_)),
          sequences_(other.sequences_) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(limits_, other.limits_);
      std::swap(client_, other.client_);
      std::swap(sequences_, other.sequences_);
      return *this;
    }
    ~Lease();

    // What the request turned out to ask for: so many sequences in all, and the tokens of its prompts.
    std::optional<Refused> extend(int sequences, int64_t tokens, TimePoint now);
    // Tokens that were generated for it.
    void charge(int64_t tokens);

   private:
    ClientLimits* limits_ = nullptr;
    std::string client_;
    int sequences_ = 1;
  };

  std::variant<Lease, Refused> admit(const std::string& client, TimePoint now);
  // Whether a request would be refused for the requests of the last minute; counts nothing. False for clients that are
  // not known.
  std::optional<Refused> exhausted(const std::string& client, TimePoint now) const;
  size_t known() const;

 private:
  struct Client {
    double allowance = 0;  // sequences that may come at once
    double tokens = 0;     // that may be used at once; less than 0 where answers took more
    TimePoint seen{};
    int running = 0;  // sequences
  };
  double allowance_of(const Client& client, TimePoint now) const;
  double tokens_of(const Client& client, TimePoint now) const;
  void bring_up_to(Client& client, TimePoint now) const;
  Refused wait_of(double allowance, int sequences = 1) const;
  std::optional<Refused> check(const Client& client, int sequences) const;
  std::optional<Refused> extend(const std::string& client, int more, int64_t tokens, TimePoint now);
  void charge(const std::string& client, int64_t tokens);
  void release(const std::string& client, int sequences);
  void forget_idle(TimePoint now);

  ClientLimitOptions options_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Client> clients_;
  TimePoint swept_{};
};

}  // namespace sluice::server
