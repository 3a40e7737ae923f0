// The servers that prefill for this one. Of any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sluice::server {

struct PeerAddress {
  std::string host, port;
};
// "http://host:port" cut in two. Errors name the option and the text.
Result<PeerAddress> parse_peer(std::string_view option, const std::string& text);
// The key in a file's first line, as KEY or NAME:KEY; empty where no file is named. Errors name the option.
Result<std::string> read_peer_key(std::string_view option, const std::string& path);

// The field by which a router says which of the peers shall prefill.
inline constexpr std::string_view kPrefillField = "x-sluice-prefill";

class PrefillPeers {
 public:
  struct Peer {
    std::string url;
    PeerAddress address;
    std::atomic<Clock::rep> down_until{0};
    std::atomic<int> running{0};
  };

  // An error names the option.
  static Result<PrefillPeers> make(const std::vector<std::string>& urls, const std::string& key_file);

  // The one that is wanted where it is one of these, else the one with least to do; null where all have failed just now.
  Peer* choose(const std::string* wanted) const;
  const std::string& key() const { return key_; }
  // It gets nothing for a while.
  static void note_failure(Peer& peer);

 private:
  std::vector<std::unique_ptr<Peer>> peers_;
  std::string key_;
};

}  // namespace sluice::server
