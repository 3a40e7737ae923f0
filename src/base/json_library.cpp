// Boost.JSON, compiled here instead of linked: its objects hash their keys with FNV, whose collisions do not depend on
// the salt that it adds. The overload below is the better match of every call, and hashes with the process's own key.
#include <cstddef>
#include <string_view>

#include "base/keyed_hash.h"

namespace boost::json::detail {

inline std::size_t digest(const char* begin, const char* end, std::size_t /*salt*/) noexcept {
  return sluice::keyed_hash(std::string_view(begin, static_cast<std::size_t>(end - begin)));
}

}  // namespace boost::json::detail

#include <boost/json/src.hpp>
