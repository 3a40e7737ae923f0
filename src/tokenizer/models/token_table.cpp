#include "tokenizer/models/token_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace sluice::tokenizer {

namespace {

constexpr uint64_t multiplier = 0x9E3779B97F4A7C15;

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * multiplier;
  return hash ^ hash >> 29;
}

uint64_t pair_key(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * multiplier;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash, word);
    bytes.remove_prefix(8);
  }
  uint64_t last = 0;
  std::memcpy(&last, bytes.data(), bytes.size());
  hash = mix(hash, last);
  return hash ^ hash >> 32;
}

void TokenTable::set(Token id, std::string_view text) {
  SLUICE_CHECK_LT(static_cast<size_t>(id), texts_.size());
  texts_[static_cast<size_t>(id)] = {blob_.size(), static_cast<uint32_t>(text.size())};
  blob_ += text;
}

size_t TokenTable::probe(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const Slot& entry = slots_[slot];
    if (entry.id == no_token || (entry.tag == tag && this->text(entry.id) == text)) return slot;
  }
}

bool TokenTable::index(Token id) {
  if ((used_ + 1) * 2 > slots_.size()) grow();
  const std::string_view text = this->text(id);
  const uint64_t hash = hash_bytes(text);
  Slot& entry = slots_[probe(text, hash)];
  if (entry.id != no_token) return entry.id == id;
  entry = {static_cast<uint32_t>(hash >> 32), id};
  ++used_;
  return true;
}

void TokenTable::grow() {
  std::vector<Slot> old(std::bit_ceil(std::max<size_t>(16, std::max(texts_.size(), used_ + 1) * 2)));
  old.swap(slots_);
  for (const Slot& entry : old) {
    if (entry.id == no_token) continue;
    const std::string_view text = this->text(entry.id);
    slots_[probe(text, hash_bytes(text))] = entry;
  }
}

Token TokenTable::find(std::string_view text) const {
  return slots_.empty() ? no_token : slots_[probe(text, hash_bytes(text))].id;
}

void TokenTable::find(std::span<const std::string_view> texts, std::span<Token> ids) const {
  SLUICE_CHECK_EQ(texts.size(), ids.size());
  SLUICE_CHECK_LE(texts.size(), largest_batch);
  if (slots_.empty()) {
    std::fill(ids.begin(), ids.end(), no_token);
    return;
  }
  std::array<uint64_t, largest_batch> hashes;
  const auto first_slot = [&](size_t i) -> const Slot& { return slots_[hashes[i] & (slots_.size() - 1)]; };
  for (size_t i = 0; i < texts.size(); ++i) {
    hashes[i] = hash_bytes(texts[i]);
    __builtin_prefetch(&first_slot(i));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (first_slot(i).id != no_token) __builtin_prefetch(&texts_[static_cast<size_t>(first_slot(i).id)]);
  }
  for (size_t i = 0; i < texts.size(); ++i) __builtin_prefetch(text(first_slot(i).id).data());
  for (size_t i = 0; i < texts.size(); ++i) ids[i] = slots_[probe(texts[i], hashes[i])].id;
}

MergeTable::MergeTable(size_t count) : slots_(std::bit_ceil(std::max<size_t>(16, count * 2))) {}

size_t MergeTable::probe(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  uint64_t hash = key * multiplier;
  hash ^= hash >> 32;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot].key == key || slots_[slot].key == empty_key) return slot;
  }
}

void MergeTable::insert(Token left, Token right, Merge merge) {
  SLUICE_CHECK_LT(used_ * 2, slots_.size());
  Slot& entry = slots_[probe(pair_key(left, right))];
  if (entry.key != empty_key) return;
  entry = {pair_key(left, right), merge};
  ++used_;
}

MergeTable::Merge MergeTable::find(Token left, Token right) const {
  if (left < 0 || right < 0) return {};
  const Slot& entry = slots_[probe(pair_key(left, right))];
  return entry.key == empty_key ? Merge{} : entry.merge;
}

}  // namespace sluice::tokenizer
