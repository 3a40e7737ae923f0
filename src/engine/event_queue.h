// Carries events from the engine's thread to another one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/system/memory.h"
#include "engine/events.h"

namespace sluice::engine {

// Deltas of one choice that nobody has fetched yet are merged, so a slow reader holds no more than the answer
// itself. Where there was no memory for an event, the answer ends with that error.
class EventQueue {
 public:
  void push(Event event) {
    {
      const std::lock_guard lock(mutex_);
      if (lost_) return;
      try {
        if (!merge(event)) events_.push_back(std::move(event));
      } catch (const std::bad_alloc&) {
        lost_ = true;
      }
    }
    arrived_.notify_one();
  }

  // The next event; nothing where none came in time.
  template <class Duration>
  std::optional<Event> pop_for(Duration timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [&] { return lost_ || !events_.empty(); });
    return take();
  }
  Event pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return lost_ || !events_.empty(); });
    return *take();
  }
  std::optional<Event> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }

 private:
  std::optional<Event> take() {
    if (events_.empty() && lost_) return Finished{.reason = FinishReason::Error, .error = out_of_memory()};
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  bool merge(Event& event) {
    auto* fresh = std::get_if<Delta>(&event);
    auto* last = events_.empty() ? nullptr : std::get_if<Delta>(&events_.back());
    if (fresh == nullptr || last == nullptr || fresh->choice != last->choice) return false;
    const auto append = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    append(last->tokens, fresh->tokens);
    append(last->prompt_logprobs, fresh->prompt_logprobs);
    append(last->prompt_attention, fresh->prompt_attention);
    last->text += fresh->text;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
  bool lost_ = false;  // an event
};

}  // namespace sluice::engine
