#include "dist/heartbeat.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace sluice::dist {

namespace {

constexpr char kBeat = '.', kLeave = '!';
constexpr int kEnded = 0, kSilent = 1;
constexpr size_t kMostStrangers = 64;  // connections that have not said who they are
constexpr int kConnectMs = 1000;
constexpr int kAnswerMs = 10'000;  // of who has taken the connection, and may get no core for a while
constexpr size_t kHelloBytes = sizeof(uint64_t) + sizeof(int32_t);  // the token, and the rank that speaks

std::string hello_of(uint64_t token, int32_t rank) {
  std::string out(kHelloBytes, '\0');
  std::memcpy(out.data(), &token, sizeof token);
  std::memcpy(out.data() + sizeof token, &rank, sizeof rank);
  return out;
}

int milliseconds(Clock::duration span) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

bool wait_for(int socket, short events, int timeout_ms) {
  pollfd entry{socket, events, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

// Numbers of this machine's addresses, those of the loopback last.
void list_addresses(HeartbeatAddress& out) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  size_t count = 0;
  for (const bool loopback : {false, true})
    for (const ifaddrs* entry = list; entry != nullptr && count < std::size(out.hosts);
         entry = entry->ifa_next) {
      const bool is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || is_loopback != loopback)
        continue;
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &address->sin_addr, out.hosts[count++], sizeof out.hosts[0]);
    }
  freeifaddrs(list);
}

// A connection on which rank 0 has answered; -1: none.
int connect_to(const char* host, const HeartbeatAddress& leader, int rank) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(leader.port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return -1;
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  const std::string hello = hello_of(leader.token, rank), expected = hello_of(leader.token, 0);
  std::string answer;
  bool open =
      connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EINPROGRESS;
  open = open && wait_for(made, POLLOUT, kConnectMs) &&
         ::send(made, hello.data(), hello.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(hello.size());
  while (open && answer.size() < expected.size()) {
    char bytes[kHelloBytes];
    const ssize_t got =
        wait_for(made, POLLIN, kAnswerMs) ? recv(made, bytes, expected.size() - answer.size(), 0) : 0;
    open = got > 0;
    if (open) answer.append(bytes, static_cast<size_t>(got));
  }
  if (open && answer == expected) return made;
  close(made);
  return -1;
}

}  // namespace

Result<std::unique_ptr<Heartbeat>> Heartbeat::lead(int ranks, HeartbeatTiming timing) {
  auto made = std::unique_ptr<Heartbeat>(new Heartbeat(ranks - 1, timing));
  if (Status opened = made->open_listener(); !opened) return opened.error();
  std::random_device device;
  made->address_.token = (uint64_t{device()} << 32) | device();
  list_addresses(made->address_);
  made->start();
  return made;
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::follow(int rank, const HeartbeatAddress& leader,
                                                     HeartbeatTiming timing) {
  auto made = std::unique_ptr<Heartbeat>(new Heartbeat(0, timing));
  for (const auto& host : leader.hosts) {
    const int found = host[0] == '\0' ? -1 : connect_to(host, leader, rank);
    if (found < 0) continue;
    made->links_.push_back({found, 0, Clock::now(), ""});
    made->start();
    return made;
  }
  return Error{ErrorCode::Unavailable, fmt::format("rank {} finds no way to rank 0, port {} of {}", rank,
                                                   leader.port, leader.hosts[0])};
}

Heartbeat::~Heartbeat() {
  if (thread_.joinable()) {
    close(wake_[1]);
    thread_.join();
    close(wake_[0]);
  }
  leave();
  if (listener_ >= 0) close(listener_);
}

std::optional<Heartbeat::Lost> Heartbeat::lost() const {
  const int rank = lost_rank_.load(std::memory_order_acquire);
  if (rank < 0) return std::nullopt;
  if (how_.load() == kEnded) return Lost{rank, "has ended"};
  return Lost{rank, fmt::format("hangs: it was not heard of for {:g} s", Seconds(timing_.silence).count())};
}

Status Heartbeat::open_listener() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || bind(listener_, plain, length) != 0 || listen(listener_, SOMAXCONN) != 0 ||
      getsockname(listener_, plain, &length) != 0)
    return Error{ErrorCode::Unavailable,
                 fmt::format("no port for the heartbeats of ranks: {}", std::strerror(errno))};
  address_.port = ntohs(address.sin_port);
  return {};
}

void Heartbeat::start() {
  if (pipe2(wake_, O_CLOEXEC) != 0) return;
  thread_ = std::thread([this] { run(); });
}

void Heartbeat::run() {
  std::vector<pollfd> polled;
  TimePoint next = Clock::now();
  for (;;) {
    if (awaited_ == 0 && listener_ >= 0) close(std::exchange(listener_, -1));
    polled.assign({{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}});  // poll passes over -1
    for (const Link& link : links_) polled.push_back({link.socket, POLLIN, 0});
    poll(polled.data(), polled.size(), std::max(1, milliseconds(next - Clock::now()) + 1));
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < links_.size(); ++i)
      if (polled[i + 2].revents != 0) hear(links_[i]);
    if (polled[1].revents != 0) accept_link();
    const TimePoint now = Clock::now();
    if (now < next) continue;
    // This process was stopped itself, or had no core: what the others have sent meanwhile is yet to be read.
    if (now - next > timing_.silence / 2)
      for (Link& link : links_) link.heard = now;
    beat(now);
    next = now + timing_.interval();
  }
}

void Heartbeat::accept_link() {
  const int came = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (came < 0) return;
  const auto strangers =
      std::count_if(links_.begin(), links_.end(), [](const Link& link) { return link.rank < 0; });
  if (static_cast<size_t>(strangers) < kMostStrangers)
    links_.push_back({came, -1, Clock::now(), ""});
  else
    close(came);
}

void Heartbeat::hear(Link& link) {
  char bytes[64];
  const ssize_t got = recv(link.socket, bytes, sizeof bytes, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const std::string_view heard(bytes, got > 0 ? static_cast<size_t>(got) : 0);
  const bool leaves = heard.find(kLeave) != std::string_view::npos;
  if (got > 0) link.heard = Clock::now();
  if (link.rank < 0 && got > 0) return greet(link, heard);
  if (got > 0 && !leaves) return;
  if (link.rank >= 0 && !leaves) lose(link, kEnded);
  close(std::exchange(link.socket, -1));
}

void Heartbeat::greet(Link& link, std::string_view bytes) {
  link.hello.append(bytes);
  if (link.hello.size() < kHelloBytes) return;
  int32_t rank = -1;
  std::memcpy(&rank, link.hello.data() + sizeof address_.token, sizeof rank);
  const bool known = link.hello.substr(0, kHelloBytes) == hello_of(address_.token, rank) && rank > 0;
  if (!known) return static_cast<void>(close(std::exchange(link.socket, -1)));
  link.rank = rank;
  --awaited_;
  const std::string answer = hello_of(address_.token, 0);
  ::send(link.socket, answer.data(), answer.size(), MSG_NOSIGNAL);
}

// The first one stands.
void Heartbeat::lose(const Link& link, int how) {
  if (lost_rank_.load() >= 0) return;
  how_.store(how);
  lost_rank_.store(link.rank, std::memory_order_release);
}

void Heartbeat::beat(TimePoint now) {
  for (Link& link : links_) {
    if (link.socket < 0) continue;
    if (now - link.heard > timing_.silence) {
      if (link.rank >= 0) lose(link, kSilent);
      close(std::exchange(link.socket, -1));
    } else if (link.rank >= 0) {
      ::send(link.socket, &kBeat, 1, MSG_NOSIGNAL);
    }
  }
  std::erase_if(links_, [](const Link& link) { return link.socket < 0; });
}

void Heartbeat::leave() {
  for (const Link& link : links_) {
    if (link.socket < 0) continue;
    ::send(link.socket, &kLeave, 1, MSG_NOSIGNAL);
    close(link.socket);
  }
}

}  // namespace sluice::dist
