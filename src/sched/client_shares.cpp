#include "sched/client_shares.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice::sched {

namespace {

// Usage is kept in tokens of an epoch, so that fading costs nothing; before they overflow a new one begins.
constexpr double kMostScale = 1e9;

}  // namespace

void ClientShares::advance(TimePoint now) {
  if (!std::exchange(begun_, true)) epoch_ = now_ = now;
  now_ = std::max(now_, now);
  scale_ = std::exp(seconds_between(epoch_, now_) / kWindow.count());
  if (scale_ > kMostScale) rescale();
  forget_idle();
}

void ClientShares::rescale() {
  for (auto& [name, client] : clients_) client.used_ /= scale_;
  used_ /= scale_;
  epoch_ = now_;
  scale_ = 1;
}

void ClientShares::forget_idle() {
  while (!idle_.empty() && (idle_.size() > kMostIdle || now_ - idle_.front()->left_ > kWindow)) {
    const Client* client = idle_.front();
    idle_.pop_front();
    clients_.erase(client->name);
  }
}

ClientShares::Client& ClientShares::join(const std::string& name, double weight) {
  const auto [found, fresh] = clients_.try_emplace(name);
  Client& client = found->second;
  if (fresh) client.name = name;
  if (client.requests++ == 0) {
    if (!fresh) idle_.erase(client.idle_place_);
    client.weight = weight;
    client.number_ = next_number_++;
    if (!active_.empty())
      client.standing_ = std::max(client.standing_, (*active_.begin())->standing_ - 1 / weight);
    active_.insert(&client);
    active_weight_ += weight;
  } else {
    active_weight_ += weight - client.weight;
    client.weight = weight;
  }
  raise(client, (*active_.rbegin())->standing_ - used_ / scale_ / weight);
  return client;
}

void ClientShares::leave(Client& client) {
  SLUICE_CHECK(client.requests > 0);
  if (--client.requests > 0) return;
  set_queued(client, false);
  active_.erase(&client);
  active_weight_ = active_.empty() ? 0 : active_weight_ - client.weight;
  client.left_ = now_;
  client.idle_place_ = idle_.insert(idle_.end(), &client);
}

const ClientShares::Client* ClientShares::find(const std::string& name) const {
  const auto found = clients_.find(name);
  return found == clients_.end() ? nullptr : &found->second;
}

void ClientShares::set_queued(Client& client, bool queued) {
  if (client.queued_ == queued) return;
  client.queued_ = queued;
  if (queued) queued_.insert(&client);
  if (!queued) queued_.erase(&client);
}

void ClientShares::charge(Client& client, int64_t tokens) {
  client.used_ += static_cast<double>(tokens) * scale_;
  used_ += static_cast<double>(tokens) * scale_;
  raise(client, client.standing_ + static_cast<double>(tokens) / client.weight);
}

// Nobody ever falls, so that a client may stay where it is unless the next one comes to stand before it.
void ClientShares::raise(Client& client, double standing) {
  if (standing <= client.standing_) return;
  const auto overtaken = [&](const Order& order) {
    const auto next = std::next(order.find(&client));
    return next != order.end() && (*next)->standing_ <= standing;
  };
  const bool in_active = overtaken(active_);
  const bool in_queued = client.queued_ && overtaken(queued_);
  if (in_active) active_.erase(&client);
  if (in_queued) queued_.erase(&client);
  client.standing_ = standing;
  if (in_active) active_.insert(&client);
  if (in_queued) queued_.insert(&client);
}

double fair_level(std::vector<Claim> claims, int64_t budget) {
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return static_cast<double>(a.demand) / a.weight < static_cast<double>(b.demand) / b.weight;
  });
  double left = static_cast<double>(budget), weights = 0;
  for (const Claim& claim : claims) weights += claim.weight;
  for (const Claim& claim : claims) {
    const double level = left / weights;
    if (static_cast<double>(claim.demand) > level * claim.weight) return std::max(level, 0.0);
    left -= static_cast<double>(claim.demand);
    weights -= claim.weight;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace sluice::sched
