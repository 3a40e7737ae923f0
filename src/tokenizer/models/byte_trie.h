// A set of byte strings with a number each, for prefix searches.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::tokenizer {

class ByteTrie {
 public:
  static constexpr int32_t no_value = -1;
  static constexpr uint32_t no_node = ~uint32_t{0};
  static constexpr uint32_t root = 0;

  ByteTrie() { build({}); }
  // Values are >= 0. Of equal strings the last one counts; empty strings are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) { build(std::move(entries)); }

  uint32_t child(uint32_t node, char byte) const;
  int32_t value(uint32_t node) const { return nodes_[node].value; }
  bool empty() const { return nodes_.size() == 1; }
  bool starts(char byte) const { return root_[static_cast<unsigned char>(byte)] != no_node; }

  struct Match {
    int32_t value = no_value;
    size_t size = 0;
  };
  // The longest string of the set that `text` starts with.
  Match longest_prefix(std::string_view text) const;

 private:
  // The children of a node lie side by side, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    int32_t value = no_value;
    uint16_t child_count = 0;
    char byte = 0;
  };
  void build(std::vector<std::pair<std::string_view, int32_t>> entries);

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace sluice::tokenizer
