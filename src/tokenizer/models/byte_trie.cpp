#include "tokenizer/models/byte_trie.h"

#include <algorithm>

namespace sluice::tokenizer {

void ByteTrie::build(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first over ranges of the sorted entries that share their first `depth` bytes.
  struct Open {
    size_t begin, end, depth;
  };
  std::vector<Open> open = {{0, entries.size(), 0}};
  nodes_.assign(1, Node{});
  for (size_t node = 0; node < open.size(); ++node) {
    auto [begin, end, depth] = open[node];
    while (begin < end && entries[begin].first.size() == depth) {
      if (depth > 0) nodes_[node].value = entries[begin].second;
      ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      size_t next = begin;
      while (next < end && entries[next].first[depth] == byte) ++next;
      nodes_.push_back({.byte = byte});
      open.push_back({begin, next, depth + 1});
      ++nodes_[node].child_count;
      begin = next;
    }
  }
  root_.fill(no_node);
  for (uint32_t i = 0; i < nodes_[root].child_count; ++i) {
    const uint32_t first = nodes_[root].first_child + i;
    root_[static_cast<unsigned char>(nodes_[first].byte)] = first;
  }
}

uint32_t ByteTrie::child(uint32_t node, char byte) const {
  if (node == root) return root_[static_cast<unsigned char>(byte)];
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first_child;
  const auto end = begin + parent.child_count;
  const auto found = parent.child_count <= 8
                         ? std::find_if(begin, end, [&](const Node& child) { return child.byte == byte; })
                         : std::lower_bound(begin, end, byte, [](const Node& child, char key) {
                             return static_cast<unsigned char>(child.byte) < static_cast<unsigned char>(key);
                           });
  return found == end || found->byte != byte ? no_node : static_cast<uint32_t>(found - nodes_.begin());
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text) const {
  Match best;
  uint32_t node = root;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == no_node) break;
    if (nodes_[node].value != no_value) best = {nodes_[node].value, i + 1};
  }
  return best;
}

}  // namespace sluice::tokenizer
