#include "server/handover/prefill_peers.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "server/http/http.h"

namespace sluice::server {

namespace {

constexpr std::chrono::seconds kPeerPause{2};  // after a failure

}  // namespace

Result<PeerAddress> parse_peer(std::string_view option, const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  std::string rest = text;
  if (rest.starts_with(kScheme)) rest.erase(0, kScheme.size());
  if (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  const bool port = colon != std::string::npos && colon + 1 < rest.size() && rest.back() != ']' &&
                    rest.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  PeerAddress out{port ? rest.substr(0, colon) : rest, port ? rest.substr(colon + 1) : "80"};
  if (!is_host(rest))
    return Error{ErrorCode::InvalidArgument, fmt::format("{} '{}' must be http://HOST:PORT", option, text)};
  if (out.host.starts_with('[')) out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

Result<std::string> read_peer_key(std::string_view option, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::string_view text = trim(line);
  const std::string key(text.substr(text.find(':') == std::string_view::npos ? 0 : text.find(':') + 1));
  if (!key.empty() && key.find_first_of("\r\n ") == std::string::npos) return key;
  return Error{ErrorCode::InvalidArgument, fmt::format("{} '{}' has no key in its first line", option, path)};
}

Result<PrefillPeers> PrefillPeers::make(const std::vector<std::string>& urls, const std::string& key_file) {
  PrefillPeers out;
  for (const std::string& url : urls) {
    Result<PeerAddress> address = parse_peer("--prefill-server", url);
    if (!address) return address.error();
    auto peer = std::make_unique<Peer>();
    peer->url = fmt::format("http://{}:{}", address->host, address->port);  // as routers write it
    peer->address = std::move(*address);
    out.peers_.push_back(std::move(peer));
  }
  Result<std::string> key = read_peer_key("--prefill-server-key-file", key_file);
  if (!key) return key.error();
  out.key_ = std::move(*key);
  return out;
}

PrefillPeers::Peer* PrefillPeers::choose(const std::string* wanted) const {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Peer* best = nullptr;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer->down_until > now) continue;
    if (wanted != nullptr && peer->url == *wanted) return peer.get();
    if (best == nullptr || peer->running < best->running) best = peer.get();
  }
  return best;
}

void PrefillPeers::note_failure(Peer& peer) {
  peer.down_until = (Clock::now() + kPeerPause).time_since_epoch().count();
}

}  // namespace sluice::server
