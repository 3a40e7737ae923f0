#include "base/keyed_hash.h"

#include <bit>
#include <random>

namespace sluice {

namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }
};

uint64_t little_endian(const char* bytes, size_t count) {
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i) word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return word;
}

HashKey random_key() {
  std::random_device device;
  const auto word = [&] { return (uint64_t{device()} << 32) | device(); };
  return {word(), word()};
}

}  // namespace

uint64_t keyed_hash(std::string_view bytes, HashKey key) {
  SipState state{key.low ^ 0x736F6D6570736575, key.high ^ 0x646F72616E646F6D, key.low ^ 0x6C7967656E657261,
                 key.high ^ 0x7465646279746573};
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) state.take(little_endian(bytes.data() + at, 8));
  state.take(little_endian(bytes.data() + at, bytes.size() - at) | uint64_t{bytes.size()} << 56);
  state.v2 ^= 0xFF;
  for (int i = 0; i < 3; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

uint64_t keyed_hash(std::string_view bytes) {
  static const HashKey key = random_key();
  return keyed_hash(bytes, key);
}

}  // namespace sluice
