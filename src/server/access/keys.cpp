#include "server/access/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/system/file.h"
#include "server/http/http.h"

namespace sluice::server {

namespace {

constexpr size_t kKeyBytes = 512, kNameBytes = 64, kMostKeys = 10'000;
constexpr size_t kFileBytes = kMostKeys * 2 * (kKeyBytes + kNameBytes);  // with comments

constexpr size_t kNamedOwners = 20;  // in a message

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytes &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
             std::string_view::npos;
}

bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kKeyBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

Sha256Digest digest_of(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Result<KeyRing> KeyRing::make(const KeySource& source) {
  KeyRing ring;
  for (size_t i = 0; i < source.keys.size(); ++i) {
    if (Status added = ring.add(source.keys[i], fmt::format("--api-key {}", i + 1)); !added)
      return added.error();
  }
  if (!source.file.empty()) {
    if (Status added = ring.add_file(source.file); !added) return added.error();
  }
  return ring;
}

Status KeyRing::add_file(const std::string& path) {
  const Result<std::string> bytes = read_regular_file(path, kFileBytes);
  if (!bytes) return Error{bytes.error().code, "key file " + bytes.error().message};
  size_t number = 0;
  for (std::string_view rest = *bytes; !rest.empty();) {
    ++number;
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view text = trim(line);
    if (text.empty() || text.front() == '#') continue;
    if (Status added = add(text, fmt::format("key file '{}', line {}", path, number)); !added) return added;
  }
  return {};
}

Status KeyRing::add(std::string_view text, const std::string& place) {
  const size_t colon = text.find(':');
  const bool named = colon != std::string_view::npos && is_name(text.substr(0, colon));
  const std::string_view key = named ? text.substr(colon + 1) : text;
  if (!is_key(key))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: a key is 1 to {} visible characters", place, kKeyBytes)};
  if (keys_.size() == kMostKeys)
    return Error{ErrorCode::LimitExceeded, fmt::format("{}: more than {} keys", place, kMostKeys)};
  keys_.push_back(
      {named ? std::string(text.substr(0, colon)) : fmt::format("key-{}", keys_.size() + 1), digest_of(key)});
  return {};
}

bool KeyRing::has_owner(std::string_view name) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.name == name; });
}

std::string KeyRing::owners() const {
  std::string names;
  for (size_t i = 0; i < std::min(keys_.size(), kNamedOwners); ++i)
    names += (i == 0 ? "" : ", ") + keys_[i].name;
  return keys_.size() > kNamedOwners ? names + ", ..." : names;
}

std::optional<std::string> KeyRing::find(std::string_view presented) const {
  const Sha256Digest wanted = digest_of(presented);
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    unsigned difference = 0;
    for (size_t i = 0; i < wanted.size(); ++i) difference |= static_cast<unsigned>(wanted[i] ^ key.digest[i]);
    if (difference == 0) found = &key;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

}  // namespace sluice::server
