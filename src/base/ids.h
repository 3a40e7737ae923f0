// The small words that every layer shares.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace sluice {

using Token = int32_t;

// A number that cannot be mixed up with another kind of number.
template <class Tag, class Int>
struct StrongId {
  Int value{};
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << id.value; }
};

using SeqId = StrongId<struct SeqTag, uint64_t>;  // one sequence: a request, or one of its choices or beams
using BlockId = StrongId<struct BlockTag, int32_t>;  // one block of KV memory

}  // namespace sluice

template <class Tag, class Int>
struct std::hash<sluice::StrongId<Tag, Int>> {
  size_t operator()(sluice::StrongId<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
