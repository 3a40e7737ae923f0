// The places in the queue, shared between the clients that have something waiting.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"

namespace sluice::engine {

// REQUIRES for those without another word: mutex_ is held.

// Where the queue is full, a client still gets what is within its share of it.
Status Engine::check_place(const std::string& client, double weight, const Load& load) const {
  const auto found = client_loads_.find(client);
  const Load own = found == client_loads_.end() ? Load{} : found->second.load;
  const double others = waiting_weight_ - (found == client_loads_.end() ? 0 : found->second.weight);
  const double part = weight / std::max(weight, others + weight);
  const QueueLimits& limits = options_.queue;
  const auto fits = [&](size_t waiting, size_t mine, size_t more, size_t limit) {
    return waiting + more <= limit || static_cast<double>(mine + more) <= part * static_cast<double>(limit);
  };
  const auto over = [](const char* what, size_t limit) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("too much is waiting: the queue is limited to {} {}", limit, what)};
  };
  if (!fits(waiting_load_.requests, own.requests, load.requests, limits.requests))
    return over("requests", limits.requests);
  if (!fits(waiting_load_.tokens, own.tokens, load.tokens, limits.tokens))
    return over("tokens", limits.tokens);
  if (!fits(waiting_load_.bytes, own.bytes, load.bytes, limits.bytes)) return over("bytes", limits.bytes);
  return {};
}

Status Engine::take_place(const Submission& submission) {
  const request::Request& request = submission.request;
  const Load load = load_of(submission);
  if (Status status = check_place(request.client, request.weight, load); !status) return status;
  ClientLoad& client = client_loads_.try_emplace(request.client, ClientLoad{{}, 0}).first->second;
  waiting_weight_ += request.weight - client.weight;
  client.weight = request.weight;
  for (Load* sum : {&waiting_load_, &client.load}) {
    sum->requests += load.requests;
    sum->tokens += load.tokens;
    sum->bytes += load.bytes;
  }
  return {};
}

// REQUIRES: mutex_ is not held.
void Engine::free_place(const Place& place) {
  const std::lock_guard lock(mutex_);
  const auto found = client_loads_.find(place.client);
  for (Load* sum : {&waiting_load_, &found->second.load}) {
    sum->requests -= place.load.requests;
    sum->tokens -= place.load.tokens;
    sum->bytes -= place.load.bytes;
  }
  if (found->second.load.requests > 0) return;
  waiting_weight_ -= found->second.weight;
  client_loads_.erase(found);
}

// REQUIRES: mutex_ is not held.
bool Engine::has_place(const std::string& client, double weight) const {
  const std::lock_guard lock(mutex_);
  return check_place(client, weight, {.requests = 1}).ok();
}

// The client that has most per weight of what there is too much of; nothing where nothing is over its limit.
std::optional<std::string> Engine::most_borrowing() const {
  size_t Load::*const resources[] = {&Load::requests, &Load::tokens, &Load::bytes};
  const size_t limits[] = {options_.queue.requests, options_.queue.tokens, options_.queue.bytes};
  for (size_t i = 0; i < std::size(resources); ++i) {
    if (waiting_load_.*resources[i] <= limits[i]) continue;
    const auto per_weight = [&](const auto& item) {
      return static_cast<double>(item.second.load.*resources[i]) / item.second.weight;
    };
    const auto most =
        std::max_element(client_loads_.begin(), client_loads_.end(),
                         [&](const auto& a, const auto& b) { return per_weight(a) < per_weight(b); });
    return most->first;
  }
  return std::nullopt;
}

// The engine's thread. REQUIRES: mutex_ is not held.
void Engine::give_places_back() {
  while (true) {
    std::optional<std::string> client;
    {
      const std::lock_guard lock(mutex_);
      client = most_borrowing();
    }
    if (!client) return;
    const std::optional<RequestId> youngest = scheduler_.youngest_waiting(*client);
    if (!youngest) return;  // what came meanwhile is still in the inbox
    metrics_.places_given_back.add();
    end_early(*youngest, FinishReason::Expired,
              Error{ErrorCode::Unavailable,
                    "too much is waiting: the place in the queue was given back to a client with fewer"});
  }
}

}  // namespace sluice::engine
