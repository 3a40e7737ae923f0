#include "server/client_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::server {

namespace {

constexpr size_t kMostClients = 4096;
constexpr const char* kOverflowClient = "(others)";

}  // namespace

ClientLimits::Lease::~Lease() {
  if (limits_ != nullptr) limits_->release(client_);
}

std::variant<ClientLimits::Lease, ClientLimits::Refused> ClientLimits::admit(const std::string& client,
                                                                             TimePoint now) {
  if (options_.requests_per_minute == 0 && options_.concurrency == 0) return Lease();
  const std::lock_guard lock(mutex_);
  if (clients_.size() >= kMostClients && !clients_.contains(client)) forget_idle(now);
  const bool room = clients_.size() < kMostClients || clients_.contains(client);
  const std::string name = room ? client : kOverflowClient;
  const double most = options_.requests_per_minute;
  const auto [place, fresh] = clients_.try_emplace(name, Client{most, now, 0});
  Client& entry = place->second;
  entry.allowance = allowance_of(entry, now);
  entry.seen = now;
  if (options_.concurrency > 0 && entry.running >= options_.concurrency)
    return Refused{fmt::format("{} requests of this key are running; the limit is {}", entry.running,
                               options_.concurrency),
                   1};
  if (options_.requests_per_minute > 0 && entry.allowance < 1) return wait_of(entry.allowance);
  entry.allowance -= 1;
  ++entry.running;
  return Lease(this, name);
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

ClientLimits::Refused ClientLimits::wait_of(double allowance) const {
  const double wait = (1 - allowance) * 60.0 / options_.requests_per_minute;
  return {fmt::format("this key may send {} requests a minute", options_.requests_per_minute),
          std::max(1, static_cast<int>(std::ceil(wait)))};
}

void ClientLimits::release(const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found != clients_.end()) --found->second.running;
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
