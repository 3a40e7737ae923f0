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

PrefixKey root_key(std::string_view model, std::string_view salt, int rope_set) {
  Sha256 hash;
  update_part(hash, "sluice kv prefix");
  update_part(hash, model);
  update_part(hash, salt);
  hash.update(std::as_bytes(std::span(&rope_set, 1)));
  return {hash.finish()};
}

PrefixKey child_key(const PrefixKey& parent, std::span<const Token> tokens) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(parent.digest)));
  hash.update(std::as_bytes(tokens));
  return {hash.finish()};
}

}  // namespace sluice::kv
