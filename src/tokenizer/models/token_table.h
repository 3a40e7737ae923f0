// Strings by token id, and ids by string: one block of memory, open addressing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace sluice::tokenizer {

inline constexpr Token no_token = -1;

uint64_t hash_bytes(std::string_view bytes);

class TokenTable {
 public:
  // Ids are [0, size). REQUIRES: no id is set twice.
  explicit TokenTable(size_t size = 0) : texts_(size) {}

  // Sets the string of an id without making it findable.
  void set(Token id, std::string_view text);
  // Makes the string of an id findable; false, and no change, where another id has the same string.
  bool index(Token id);

  size_t size() const { return texts_.size(); }
  // Empty for an id out of range or without a string.
  std::string_view text(Token id) const {
    if (id < 0 || static_cast<size_t>(id) >= texts_.size()) return {};
    const Slice slice = texts_[static_cast<size_t>(id)];
    return std::string_view(blob_).substr(slice.begin, slice.size);
  }
  // no_token where there is none
  Token find(std::string_view text) const;
  // The same for many strings: what one of them waits for in memory is fetched while others are compared.
  // REQUIRES: equal sizes, at most largest_batch.
  static constexpr size_t largest_batch = 64;
  void find(std::span<const std::string_view> texts, std::span<Token> ids) const;

 private:
  struct Slice {
    uint64_t begin = 0;
    uint32_t size = 0;
  };
  struct Slot {
    uint32_t tag = 0;  // high bits of the hash
    Token id = no_token;
  };
  void grow();
  size_t probe(std::string_view text, uint64_t hash) const;

  std::string blob_;
  std::vector<Slice> texts_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t used_ = 0;
};

// (left, right) -> the token they merge into and how early.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = no_rank;
    Token id = no_token;
  };
  static constexpr uint32_t no_rank = ~uint32_t{0};

  explicit MergeTable(size_t count = 0);
  // A pair that is already there keeps its first rank.
  void insert(Token left, Token right, Merge merge);
  Merge find(Token left, Token right) const;
  size_t size() const { return used_; }

 private:
  struct Slot {
    uint64_t key = empty_key;
    Merge merge;
  };
  static constexpr uint64_t empty_key = ~uint64_t{0};
  size_t probe(uint64_t key) const;

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace sluice::tokenizer
