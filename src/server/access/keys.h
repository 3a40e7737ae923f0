// Who may use the server: keys, and whose they are. Only digests are kept, and all of them are compared each time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"

namespace sluice::server {

struct KeySource {
  std::vector<std::string> keys;  // "key" or "name:key"
  std::string file;               // lines of the same kind, '#' begins a comment; empty: none
};

class KeyRing {
 public:
  // Keys are 1 to 512 visible characters; names are letters, digits, ".-_", at most 64. A key without a name is called
  // after its place: "key-1". Errors name the place, never the key.
  static Result<KeyRing> make(const KeySource& source);

  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  bool has_owner(std::string_view name) const;
  // Of owners, in the order of their keys: "ann, bob"; of many, only the first.
  std::string owners() const;
  // The name of a key's owner. Time does not depend on the keys.
  std::optional<std::string> find(std::string_view presented) const;

 private:
  struct Key {
    std::string name;
    Sha256Digest digest;
  };
  Status add(std::string_view text, const std::string& place);
  Status add_file(const std::string& path);

  std::vector<Key> keys_;
};

}  // namespace sluice::server
