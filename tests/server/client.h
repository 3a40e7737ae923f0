// A plain HTTP client for tests: it sends exactly the bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::server {

struct Response {
  int status = 0;                             // 0: the connection ended before a complete head
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // decoded
  bool complete = false;                      // all of the body came
};

class Client {
 public:
  // `from` is an address of this machine: all of 127.0.0.0/8 are.
  explicit Client(int port, int receive_buffer = 0, const char* from = nullptr)
      : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (from != nullptr) {
      sockaddr_in own{};
      own.sin_family = AF_INET;
      inet_pton(AF_INET, from, &own.sin_addr);
      if (::bind(descriptor_, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) return;
    }
    if (receive_buffer > 0)
      setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(descriptor_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const int on = 1;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client(Client&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), connected_(other.connected_), left_(other.left_) {}

  bool connected() const { return connected_; }

  Client& send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return *this;
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  void reset() {
    const linger hard{1, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void half_close() { ::shutdown(descriptor_, SHUT_WR); }

  // More bytes, into `left_`; false at the end, on an error and after `timeout_ms`.
  bool fill(int timeout_ms = 30'000) {
    pollfd wait{descriptor_, POLLIN, 0};
    if (::poll(&wait, 1, timeout_ms) != 1) return false;
    char bytes[16384];
    const ssize_t got = ::recv(descriptor_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    left_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  // Bytes up to and with `mark`; what there is where it does not come.
  std::string read_until(std::string_view mark, int timeout_ms = 30'000) {
    size_t at = 0;
    while ((at = left_.find(mark)) == std::string::npos)
      if (!fill(timeout_ms)) return std::exchange(left_, {});
    std::string out = left_.substr(0, at + mark.size());
    left_.erase(0, out.size());
    return out;
  }
  // The other side has closed, and nothing was left unread.
  bool at_end(int timeout_ms = 30'000) {
    if (!left_.empty()) return false;
    pollfd wait{descriptor_, POLLIN, 0};
    if (::poll(&wait, 1, timeout_ms) != 1) return false;
    char byte = 0;
    return ::recv(descriptor_, &byte, 1, MSG_PEEK) <= 0;
  }

  Response read_head() {
    Response response;
    const std::string head = read_until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ") || !head.ends_with("\r\n\r\n")) return response;
    response.status = std::atoi(head.c_str() + 9);
    size_t at = head.find("\r\n") + 2;
    while (at + 2 < head.size()) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      response.fields[head.substr(at, colon - at)] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return response;
  }
  Response read_response(bool has_body = true) {
    Response response = read_head();
    if (response.status == 100) response = read_head();
    if (response.status == 0) return response;
    if (!has_body || response.status == 204 || response.status == 304) {
      response.complete = true;
    } else if (response.fields.contains("transfer-encoding")) {
      read_chunks(response);
    } else if (const auto length = response.fields.find("content-length"); length != response.fields.end()) {
      const size_t wanted = std::stoul(length->second);
      while (left_.size() < wanted && fill()) {
      }
      response.complete = left_.size() >= wanted;
      response.body = left_.substr(0, wanted);
      left_.erase(0, response.body.size());
    } else {
      while (fill()) {
      }
      response.body = std::exchange(left_, {});
      response.complete = true;
    }
    return response;
  }
  // The content of the next chunk; empty: the last one, or the end.
  std::string read_chunk() {
    const std::string line = read_until("\r\n");
    if (line.empty()) return "";
    const size_t size = std::stoul(line, nullptr, 16);
    while (left_.size() < size + 2 && fill()) {
    }
    std::string out = left_.substr(0, size);
    left_.erase(0, size + 2);
    return out;
  }

 private:
  void read_chunks(Response& response) {
    while (true) {
      const std::string line = read_until("\r\n");
      if (!line.ends_with("\r\n")) return;
      const size_t size = std::stoul(line, nullptr, 16);
      while (left_.size() < size + 2)
        if (!fill()) return;
      response.body += left_.substr(0, size);
      left_.erase(0, size + 2);
      response.complete = size == 0;
      if (size == 0) return;
    }
  }

  int descriptor_;
  bool connected_ = false;
  std::string left_;
};

}  // namespace sluice::server
