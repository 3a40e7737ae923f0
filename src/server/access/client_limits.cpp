#include "server/access/client_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::server {

namespace {

constexpr size_t kMostClients = 4096;
constexpr const char* kOverflowClient = "(others)";

}  // namespace

ClientLimits::Lease::~Lease() {
  if (limits_ != nullptr) limits_->release(client_, sequences_);
}

std::optional<ClientLimits::Refused> ClientLimits::Lease::extend(int sequences, int64_t tokens,
                                                                 TimePoint now) {
  if (limits_ == nullptr) return std::nullopt;
  std::optional<Refused> refused = limits_->extend(client_, sequences - sequences_, tokens, now);
  if (!refused) sequences_ = sequences;
  return refused;
}

void ClientLimits::Lease::charge(int64_t tokens) {
  if (limits_ != nullptr) limits_->charge(client_, tokens);
}

std::variant<ClientLimits::Lease, ClientLimits::Refused> ClientLimits::admit(const std::string& client,
                                                                             TimePoint now) {
  if (options_.requests_per_minute == 0 && options_.concurrency == 0 && options_.tokens_per_minute == 0)
    return Lease();
  const std::lock_guard lock(mutex_);
  if (clients_.size() >= kMostClients && !clients_.contains(client)) forget_idle(now);
  const bool room = clients_.size() < kMostClients || clients_.contains(client);
  const std::string name = room ? client : kOverflowClient;
  const auto [place, fresh] = clients_.try_emplace(
      name, Client{double{1} * options_.requests_per_minute, double{1} * options_.tokens_per_minute, now, 0});
  Client& entry = place->second;
  bring_up_to(entry, now);
  if (std::optional<Refused> refused = check(entry, 1)) return *std::move(refused);
  if (options_.tokens_per_minute > 0 && entry.tokens <= 0) {
    const double wait = (1 - entry.tokens) * 60.0 / options_.tokens_per_minute;
    return Refused{fmt::format("this key may use {} tokens a minute", options_.tokens_per_minute),
                   std::max(1, static_cast<int>(std::ceil(wait)))};
  }
  entry.allowance -= 1;
  ++entry.running;
  return Lease(this, name);
}

// So many more sequences.
std::optional<ClientLimits::Refused> ClientLimits::check(const Client& client, int sequences) const {
  if (options_.concurrency > 0 && client.running + sequences > options_.concurrency)
    return Refused{
        fmt::format("{} sequences of this key are running and {} more are asked for; the limit is {}",
                    client.running, sequences, options_.concurrency),
        1};
  if (options_.requests_per_minute > 0 && client.allowance < sequences)
    return wait_of(client.allowance, sequences);
  return std::nullopt;
}

std::optional<ClientLimits::Refused> ClientLimits::extend(const std::string& client, int more, int64_t tokens,
                                                          TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end()) return std::nullopt;
  Client& entry = found->second;
  bring_up_to(entry, now);
  if (more > 0)
    if (std::optional<Refused> refused = check(entry, more)) return refused;
  entry.running += more;
  entry.allowance -= more;
  entry.tokens -= static_cast<double>(tokens);
  return std::nullopt;
}

void ClientLimits::charge(const std::string& client, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  if (const auto found = clients_.find(client); found != clients_.end())
    found->second.tokens -= static_cast<double>(tokens);
}

std::optional<ClientLimits::Refused> ClientLimits::exhausted(const std::string& client, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end() || options_.requests_per_minute == 0) return std::nullopt;
  const double allowance = allowance_of(found->second, now);
  return allowance < 1 ? std::optional(wait_of(allowance)) : std::nullopt;
}

double ClientLimits::allowance_of(const Client& client, TimePoint now) const {
  const double most = options_.requests_per_minute;
  return std::min(most, client.allowance + seconds_between(client.seen, now) * most / 60.0);
}

double ClientLimits::tokens_of(const Client& client, TimePoint now) const {
  const double most = options_.tokens_per_minute;
  return std::min(most, client.tokens + seconds_between(client.seen, now) * most / 60.0);
}

void ClientLimits::bring_up_to(Client& client, TimePoint now) const {
  client.allowance = allowance_of(client, now);
  client.tokens = tokens_of(client, now);
  client.seen = now;
}

ClientLimits::Refused ClientLimits::wait_of(double allowance, int sequences) const {
  const double wait = (sequences - allowance) * 60.0 / options_.requests_per_minute;
  return {fmt::format("this key may send {} requests a minute, each prompt and choice counted",
                      options_.requests_per_minute),
          std::max(1, static_cast<int>(std::ceil(wait)))};
}

void ClientLimits::release(const std::string& client, int sequences) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found != clients_.end()) found->second.running -= sequences;
}

void ClientLimits::forget_idle(TimePoint now) {
  if (seconds_between(swept_, now) < 1) return;  // many new clients shall not mean many sweeps
  swept_ = now;
  std::erase_if(clients_, [&](const auto& entry) {
    return entry.second.running == 0 && seconds_between(entry.second.seen, now) > 60;
  });
}

size_t ClientLimits::known() const {
  const std::lock_guard lock(mutex_);
  return clients_.size();
}

}  // namespace sluice::server
