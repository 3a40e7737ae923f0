// The identity of a block's content. A key covers the tokens of its block and, through its parent's key, all
// tokens before it, the salt, the set of rotary frequencies and the model; SHA-256, so that nobody can make two contents
// meet in one key.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/sha256.h"

namespace sluice::kv {

struct PrefixKey {
  Sha256Digest digest{};
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// The parent of first blocks. `rope_set`: the rotary frequencies that the keys are turned by, where a model has several.
PrefixKey root_key(std::string_view model, std::string_view salt, int rope_set = 0);
// The block of `tokens` after `parent`.
PrefixKey child_key(const PrefixKey& parent, std::span<const Token> tokens);

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const noexcept {
    size_t head;
    std::memcpy(&head, key.digest.data(), sizeof head);
    return head;
  }
};

}  // namespace sluice::kv
