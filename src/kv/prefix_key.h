// The identity of a block's content. A key covers the tokens of its block, or the content of embeddings in their place, and, through its parent's key, all
// tokens before it, the salt, the set of rotary frequencies and the model; SHA-256, so that nobody can make two contents
// meet in one key.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/sha256.h"
#include "request/prompt_input.h"

namespace sluice::kv {

struct PrefixKey {
  Sha256Digest digest{};
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// The parent of first blocks. `rope_set`: the rotary frequencies that the keys are turned by, where a model has several;
// `contrast`: the contrast model has filled the blocks as well.
PrefixKey root_key(std::string_view model, std::string_view salt, int rope_set = 0, bool contrast = false);
// What a block holds: the tokens from `begin` on, and what else decides their KV.
struct BlockContent {
  int begin = 0;
  std::span<const Token> tokens;
  std::span<const request::EmbeddingSpan> spans;  // of the whole prompt
  const request::Positions* positions = nullptr;  // null, or without values: those of plain text
};
// The block after `parent`. A block of plain text has the same key whatever stands elsewhere in the prompt; one with
// positions of a span is keyed by the span's content and by where in the span it lies, beside its tokens.
PrefixKey child_key(const PrefixKey& parent, const BlockContent& block);
inline PrefixKey child_key(const PrefixKey& parent, std::span<const Token> tokens) {
  return child_key(parent, BlockContent{.tokens = tokens});
}

// Keys of the full blocks of a plain text that leave at least one of its tokens to run, as KvManager::match() has it.
std::vector<PrefixKey> prefix_keys(const PrefixKey& root, std::span<const Token> tokens, int block_size);

// Its first bytes: enough to guess which blocks another process holds, not to share content by.
inline uint64_t short_key(const PrefixKey& key) {
  uint64_t head = 0;
  std::memcpy(&head, key.digest.data(), sizeof head);
  return head;
}

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const noexcept { return short_key(key); }
};

}  // namespace sluice::kv
