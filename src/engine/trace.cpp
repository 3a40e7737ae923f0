#include "engine/trace.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

template <class T>
void Trace::Ring<T>::push(T item, size_t most) {
  if (items.size() == most) items.pop_front();
  items.push_back(std::move(item));
  ++count;
}

template <class T>
std::vector<T> Trace::Ring<T>::since(uint64_t& seen) const {
  const uint64_t fresh = std::min<uint64_t>(count - std::min(seen, count), items.size());
  seen = count;
  return {items.end() - static_cast<long>(fresh), items.end()};
}

Trace::Page Trace::read(Cursor& cursor, TimePoint now) {
  const TimePoint until = now + std::chrono::duration_cast<Clock::duration>(kAttention);
  watched_until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  return {steps_.since(cursor.steps), ends_.since(cursor.ends)};
}

void Trace::add(TracedStep step) {
  auto shared = std::make_shared<const TracedStep>(std::move(step));
  const std::lock_guard lock(mutex_);
  steps_.push(std::move(shared), kSteps);
}

void Trace::add(const TracedEnd& end) {
  const std::lock_guard lock(mutex_);
  ends_.push(end, kEnds);
}

}  // namespace sluice::engine
