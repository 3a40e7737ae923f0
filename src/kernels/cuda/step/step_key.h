// What identifies a step: a 128-bit hash of every kernel it launches and of their arguments.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace sluice::kernels::cuda {

class StepKey {
 public:
  using Value = std::pair<uint64_t, uint64_t>;
  struct Hash {
    size_t operator()(const Value& value) const { return static_cast<size_t>(value.first); }
  };

  void reset() { value_ = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu}; }
  void add(const void* pointer) { mix(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer))); }
  void add_bytes(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; bytes -= 8, p += 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      mix(word);
    }
    if (bytes == 0) return;
    uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    mix(word);
  }
  Value value() const { return value_; }

 private:
  void mix(uint64_t word) {
    value_.first = rotate((value_.first ^ word) * 0x9fb21c651e98df25u, 29);
    value_.second = rotate((value_.second + word) * 0xd6e8feb86659fd93u, 37);
  }
  static uint64_t rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

  Value value_;
};

}  // namespace sluice::kernels::cuda
