#include "kv/prefix_key.h"

#include <span>

namespace sluice::kv {
namespace {

// Lengths stand before contents, so that no two different lists of parts give the same bytes.
void update_part(Sha256& hash, std::string_view part) {
  const uint64_t size = part.size();
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(std::as_bytes(std::span(part)));
}

}  // namespace

PrefixKey root_key(std::string_view model, std::string_view salt, int rope_set, bool contrast) {
  Sha256 hash;
  update_part(hash, "sluice kv prefix");
  update_part(hash, model);
  update_part(hash, salt);
  hash.update(std::as_bytes(std::span(&rope_set, 1)));
  if (contrast) update_part(hash, "contrast");
  return {hash.finish()};
}

PrefixKey child_key(const PrefixKey& parent, const BlockContent& block) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(parent.digest)));
  hash.update(std::as_bytes(block.tokens));
  const int end = block.begin + static_cast<int>(block.tokens.size());
  for (const request::EmbeddingSpan& span : block.spans) {
    if (span.end <= block.begin || span.begin >= end) continue;
    const int32_t where[] = {span.begin - block.begin, span.end - block.begin, span.bidirectional};
    update_part(hash, "span");
    hash.update(std::as_bytes(std::span(where)));
    hash.update(std::as_bytes(std::span(span.content)));
  }
  if (block.positions == nullptr || block.positions->values.empty()) return {hash.finish()};
  update_part(hash, "positions");
  for (int section = 0; section < block.positions->sections; ++section) {
    for (int token = block.begin; token < end; ++token) {
      const int32_t position = block.positions->at(section, token);
      hash.update(std::as_bytes(std::span(&position, 1)));
    }
  }
  return {hash.finish()};
}

std::vector<PrefixKey> prefix_keys(const PrefixKey& root, std::span<const Token> tokens, int block_size) {
  std::vector<PrefixKey> keys;
  const auto size = static_cast<size_t>(block_size);
  for (size_t begin = 0; begin + size < tokens.size(); begin += size)
    keys.push_back(child_key(keys.empty() ? root : keys.back(), tokens.subspan(begin, size)));
  return keys;
}

}  // namespace sluice::kv
