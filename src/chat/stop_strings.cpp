#include "chat/stop_strings.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

namespace sluice::chat {

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

StopMatcher::Automaton::Automaton(std::span<const std::string> strings) : nodes(1) {
  for (size_t index = 0; index < strings.size(); ++index) {
    State state = 0;
    for (const char byte : strings[index]) {
      const State known = child(state, byte);
      state = known == none ? add(state, byte) : known;
    }
    if (nodes[state].output < 0) nodes[state].output = static_cast<int16_t>(index);
    lengths.push_back(strings[index].size());
  }
  nodes.shrink_to_fit();
  link_suffixes();
}

StopMatcher::Automaton::State StopMatcher::Automaton::add(State parent, char byte) {
  const auto fresh = static_cast<State>(nodes.size());
  Node node;
  node.byte = byte;
  node.depth = static_cast<uint16_t>(nodes[parent].depth + 1);
  node.sibling = std::exchange(nodes[parent].first_child, fresh);
  nodes.push_back(node);
  return fresh;
}

StopMatcher::Automaton::State StopMatcher::Automaton::child(State state, char byte) const {
  State at = nodes[state].first_child;
  while (at != none && nodes[at].byte != byte) at = nodes[at].sibling;
  return at;
}

StopMatcher::Automaton::State StopMatcher::Automaton::next(State state, char byte) const {
  while (true) {
    const State found = child(state, byte);
    if (found != none || state == 0) return found;
    state = nodes[state].suffix;
  }
}

// Breadth first: the suffix of a child is found from that of its parent.
void StopMatcher::Automaton::link_suffixes() {
  std::deque<State> queue = {0};
  while (!queue.empty()) {
    const State state = queue.front();
    queue.pop_front();
    for (State at = nodes[state].first_child; at != none; at = nodes[at].sibling) {
      nodes[at].suffix = state == 0 ? State{0} : next(nodes[state].suffix, nodes[at].byte);
      if (nodes[at].output < 0) nodes[at].output = nodes[nodes[at].suffix].output;
      queue.push_back(at);
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
    state_ = automaton.next(state_, c);
    if (automaton.nodes[state_].output < 0) continue;
    step.stopped_by = static_cast<size_t>(automaton.nodes[state_].output);
    held_.resize(held_.size() - automaton.lengths[*step.stopped_by]);
    step.text = std::move(held_);
    held_.clear();
    stopped_ = true;
    return step;
  }
  const size_t certain = held_.size() - size_t{automaton.nodes[state_].depth};
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

}  // namespace sluice::chat
