// sluice healthcheck: asks a server whether it is well, for containers without any other client.
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "cli/command.h"

namespace sluice::cli {

namespace {

struct Url {
  std::string host, port = "80", path = "/";
};

Result<Url> parse_url(const std::string& text) {
  const Error wrong{ErrorCode::InvalidArgument,
                    fmt::format("--url '{}' is not http://HOST[:PORT][/PATH]", text)};
  if (!text.starts_with("http://") || text.find_first_of("\r\n ") != std::string::npos) return wrong;
  Url url;
  std::string authority = text.substr(7);
  if (const size_t slash = authority.find('/'); slash != std::string::npos) {
    url.path = authority.substr(slash);
    authority.resize(slash);
  }
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    url.port = authority.substr(colon + 1);
    authority.resize(colon);
  }
  if (authority.size() > 2 && authority.front() == '[' && authority.back() == ']')
    authority = authority.substr(1, authority.size() - 2);
  url.host = authority;
  if (url.host.empty() || url.port.empty()) return wrong;
  return url;
}

// A socket that closes itself.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

int connect_to(const Url& url, double timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found) != 0) return -1;
  const timeval limit{
      static_cast<time_t>(timeout),
      static_cast<suseconds_t>((timeout - static_cast<double>(static_cast<time_t>(timeout))) * 1e6)};
  int descriptor = -1;
  for (const addrinfo* at = found; at != nullptr && descriptor < 0; at = at->ai_next) {
    descriptor = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (descriptor < 0) continue;
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(descriptor, at->ai_addr, at->ai_addrlen) == 0) continue;
    ::close(descriptor);
    descriptor = -1;
  }
  freeaddrinfo(found);
  return descriptor;
}

// The status of a GET; 0 where there was no answer.
int status_of(const Url& url, double timeout) {
  const Socket socket(connect_to(url, timeout));
  if (socket.get() < 0) return 0;
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n", url.path, host, url.port);
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return 0;
  std::string head;
  char bytes[256];
  while (head.size() < 12) {
    const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (got <= 0) return 0;
    head.append(bytes, static_cast<size_t>(got));
  }
  if (!head.starts_with("HTTP/1.1 ")) return 0;
  return std::atoi(head.c_str() + 9);
}

class HealthcheckCommand : public Command {
 public:
  std::string_view name() const override { return "healthcheck"; }
  std::string_view summary() const override { return "ask a server whether it is well: exit 0 or 1"; }
  std::string_view examples() const override {
    return "sluice healthcheck --url http://127.0.0.1:8080/ready";
  }

  void declare(OptionSet& options) override {
    options.add(url_, "url", "what to ask; /health where there is no path").shown_as("URL");
    options.add(timeout_, "timeout", "seconds to wait for an answer").within(0.1, 600);
  }

  int run() override {
    Result<Url> url = parse_url(url_);
    if (!url) return report(url.error());
    if (url->path == "/") url->path = "/health";
    const int status = status_of(*url, timeout_);
    if (status == 200) return kSuccess;
    fmt::print(stderr, "sluice: {} {}\n", url_,
               status == 0 ? "does not answer" : fmt::format("answers {}", status));
    return kFailure;
  }

 private:
  std::string url_ = "http://127.0.0.1:8080/health";
  double timeout_ = 5;
};

}  // namespace

std::unique_ptr<Command> make_healthcheck() {
  return std::make_unique<HealthcheckCommand>();
}

}  // namespace sluice::cli
