#include "runtime/speculation/suffix_automaton.h"

#include <algorithm>

namespace sluice::runtime {

namespace {

// How many states on the way to the root learn of an occurrence. The ends of a match that is found again and again lie
// near it; the others keep an older occurrence, which is one all the same.
constexpr int kToldOfOccurrence = 4;

constexpr auto kByToken = [](const auto& edge, Token token) { return edge.first < token; };

}  // namespace

SuffixAutomaton::SuffixAutomaton() : states_(1) {}

SuffixAutomaton::State SuffixAutomaton::follow(State from, Token token) const {
  const auto& next = states_[static_cast<size_t>(from)].next;
  const auto found = std::lower_bound(next.begin(), next.end(), token, kByToken);
  return found != next.end() && found->first == token ? found->second : -1;
}

void SuffixAutomaton::set_next(State from, Token token, State to) {
  auto& next = states_[static_cast<size_t>(from)].next;
  const auto found = std::lower_bound(next.begin(), next.end(), token, kByToken);
  if (found != next.end() && found->first == token) {
    found->second = to;
  } else {
    next.insert(found, {token, to});
  }
}

// The strings of `to` that are no longer than those of `from` and the token get a state of their own.
SuffixAutomaton::State SuffixAutomaton::split(State from, State to, Token token) {
  const auto copy = static_cast<State>(states_.size());
  Node node = states_[static_cast<size_t>(to)];
  node.length = states_[static_cast<size_t>(from)].length + 1;
  states_.push_back(std::move(node));
  states_[static_cast<size_t>(to)].link = copy;
  for (; from >= 0 && follow(from, token) == to; from = states_[static_cast<size_t>(from)].link)
    set_next(from, token, copy);
  return copy;
}

void SuffixAutomaton::advance(Cursor& cursor, Token token) const {
  const auto node = [&](State state) -> const Node& { return states_[static_cast<size_t>(state)]; };
  // Shorter strings of a state may have got one of their own since.
  while (cursor.state > 0 && cursor.length <= node(node(cursor.state).link).length)
    cursor.state = node(cursor.state).link;
  State next = follow(cursor.state, token);
  while (next < 0 && cursor.state > 0) {
    cursor.state = node(cursor.state).link;
    cursor.length = node(cursor.state).length;
    next = follow(cursor.state, token);
  }
  cursor = next < 0 ? Cursor{} : Cursor{next, cursor.length + 1};
}

void SuffixAutomaton::append(Token token) {
  tokens_.push_back(token);
  const auto added = static_cast<State>(states_.size());
  states_.push_back({static_cast<int32_t>(tokens_.size()), 0, static_cast<uint32_t>(tokens_.size()), {}});
  State from = whole_;
  for (; from >= 0 && follow(from, token) < 0; from = states_[static_cast<size_t>(from)].link)
    set_next(from, token, added);
  if (from >= 0) {
    const State to = follow(from, token);
    const bool whole =
        states_[static_cast<size_t>(to)].length == states_[static_cast<size_t>(from)].length + 1;
    const State link = whole ? to : split(from, to, token);
    states_[static_cast<size_t>(added)].link = link;
  }
  whole_ = added;
  State known = states_[static_cast<size_t>(added)].link;
  repeat_ = {states_[static_cast<size_t>(known)].length, states_[static_cast<size_t>(known)].end};
  for (int i = 0; i < kToldOfOccurrence && known > 0; ++i) {
    states_[static_cast<size_t>(known)].end = static_cast<uint32_t>(tokens_.size());
    known = states_[static_cast<size_t>(known)].link;
  }
}

}  // namespace sluice::runtime
