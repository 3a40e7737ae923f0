#include "text/stop_strings.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

namespace sluice::text {

Result<StopMatcher> StopMatcher::make(std::span<const std::string> strings) {
  if (strings.size() > StopLimits::strings) {
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{} stop strings, limit {}", strings.size(), StopLimits::strings)};
  }
  for (const std::string& string : strings) {
    if (string.empty()) return Error{ErrorCode::InvalidArgument, "a stop string is empty"};
    if (string.size() > StopLimits::bytes) {
      return Error{ErrorCode::LimitExceeded,
                   fmt::format("a stop string of {} bytes, limit {}", string.size(), StopLimits::bytes)};
    }
  }
  return StopMatcher(strings);
}

StopMatcher::StopMatcher(std::span<const std::string> strings)
    : automaton_(std::make_shared<const Automaton>(strings)) {}

StopMatcher::Automaton::Automaton(std::span<const std::string> strings) {
  const auto add_state = [&](int32_t level) {
    next.resize(next.size() + alphabet, -1);
    depth.push_back(level);
    output.push_back(-1);
    return static_cast<int32_t>(depth.size()) - 1;
  };
  const auto edge = [&](int32_t state, int byte) -> int32_t& {
    return next[static_cast<size_t>(state) * alphabet + byte];
  };
  add_state(0);
  for (size_t index = 0; index < strings.size(); ++index) {
    int32_t state = 0;
    for (const char c : strings[index]) {
      const int byte = static_cast<unsigned char>(c);
      if (edge(state, byte) < 0) {
        const int32_t fresh = add_state(depth[state] + 1);
        edge(state, byte) = fresh;
      }
      state = edge(state, byte);
    }
    if (output[state] < 0) output[state] = static_cast<int32_t>(index);
    lengths.push_back(strings[index].size());
  }
  // Breadth first: a missing edge leads where the longest proper suffix leads.
  std::vector<int32_t> suffix(depth.size(), 0);
  std::deque<int32_t> queue = {0};
  while (!queue.empty()) {
    const int32_t state = queue.front();
    queue.pop_front();
    if (output[state] < 0) output[state] = output[suffix[state]];
    for (int byte = 0; byte < alphabet; ++byte) {
      const int32_t fallback = state == 0 ? 0 : edge(suffix[state], byte);
      if (edge(state, byte) < 0) {
        edge(state, byte) = fallback;
      } else {
        suffix[edge(state, byte)] = fallback;
        queue.push_back(edge(state, byte));
      }
    }
  }
}

StopMatcher::Step StopMatcher::push(std::string_view text) {
  Step step;
  if (stopped_) return step;
  if (empty()) {
    step.text = text;
    return step;
  }
  const Automaton& automaton = *automaton_;
  for (const char c : text) {
    held_ += c;
    state_ =
        automaton.next[static_cast<size_t>(state_) * Automaton::alphabet + static_cast<unsigned char>(c)];
    if (automaton.output[state_] < 0) continue;
    step.stopped_by = static_cast<size_t>(automaton.output[state_]);
    held_.resize(held_.size() - automaton.lengths[*step.stopped_by]);
    step.text = std::move(held_);
    held_.clear();
    stopped_ = true;
    return step;
  }
  const size_t certain = held_.size() - static_cast<size_t>(automaton.depth[state_]);
  step.text = held_.substr(0, certain);
  held_.erase(0, certain);
  return step;
}

std::string StopMatcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

void StopMatcher::reset() {
  state_ = 0;
  held_.clear();
  stopped_ = false;
}

}  // namespace sluice::text
