#include "server/fetch/url_fetcher.h"

#include <fmt/format.h>

#if SLUICE_CURL

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

#include "api/core/errors.h"
#include "base/clock.h"

namespace sluice::server {

namespace {

constexpr int kPollMilliseconds = 20;  // between two looks at the interrupt

struct EasyEnd {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiEnd {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};

std::optional<IpAddress> address_of(const sockaddr& socket) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (socket.sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in&>(socket).sin_addr;
  if (socket.sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6&>(socket).sin6_addr;
  if (bytes == nullptr || inet_ntop(socket.sa_family, bytes, text.data(), text.size()) == nullptr)
    return std::nullopt;
  return IpAddress::parse(text.data());
}

// One file that is being fetched: what the callbacks of the library work on.
struct Transfer {
  const FetchLimits& limits;
  std::string file;
  std::string refused;  // an address that may not be talked to
  bool too_long = false;

  static size_t take(const char* data, size_t, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.too_long = static_cast<int64_t>(transfer.file.size() + count) > transfer.limits.most_bytes;
    if (transfer.too_long) return 0;
    transfer.file.append(data, count);
    return count;
  }

  static curl_socket_t open(void* self, curlsocktype, curl_sockaddr* to) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::optional<IpAddress> address = address_of(to->addr);
    if (!address || !(is_public(*address) || transfer.limits.networks.contains(*address))) {
      transfer.refused = address ? address->text() : "of another kind than IP";
      return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  }
};

class UrlFetcher final : public api::PictureFetcher {
 public:
  explicit UrlFetcher(FetchLimits limits) : limits_(std::move(limits)) {}

  Result<std::string> fetch(const std::string& url, Interrupt* interrupt) const override {
    const std::unique_ptr<CURL, EasyEnd> easy(curl_easy_init());
    const std::unique_ptr<CURLM, MultiEnd> multi(curl_multi_init());
    if (!easy || !multi) return Error{ErrorCode::Unavailable, "there is no memory to fetch a picture"};
    Transfer transfer{.limits = limits_, .file = {}, .refused = {}};
    prepare(easy.get(), url, transfer);
    if (curl_multi_add_handle(multi.get(), easy.get()) != CURLM_OK)
      return Error{ErrorCode::Unavailable, "a picture could not be fetched"};
    const Result<CURLcode> code = run(multi.get(), interrupt);
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(multi.get(), easy.get());
    if (!code) return code.error();
    if (*code == CURLE_OK && status == 200) return std::move(transfer.file);
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the picture '{}' {}", api::clipped(url), why(*code, status, transfer))};
  }

 private:
  void prepare(CURL* easy, const std::string& url, Transfer& transfer) const {
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, limits_.most_redirects);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");  // one would connect in our place, past the check of addresses
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(limits_.most_seconds * 1000));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_seconds * 1000));
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(limits_.most_bytes));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &Transfer::open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &transfer);
  }

  // Until the one transfer has ended.
  static Result<CURLcode> run(CURLM* multi, Interrupt* interrupt) {
    int running = 1;
    while (curl_multi_perform(multi, &running) == CURLM_OK && running > 0) {
      curl_multi_poll(multi, nullptr, 0, kPollMilliseconds, nullptr);
      if (interrupt == nullptr) continue;
      if (Status status = interrupt->check(); !status) return status.error();
    }
    int left = 0;
    const CURLMsg* message = curl_multi_info_read(multi, &left);
    return message != nullptr && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
  }

  std::string why(CURLcode code, long status, const Transfer& transfer) const {
    if (!transfer.refused.empty() && code != CURLE_OK)
      return fmt::format("is at the address {}, which is not a public one; --image-url-network lets more in",
                         transfer.refused);
    if (transfer.too_long || code == CURLE_FILESIZE_EXCEEDED)
      return fmt::format("has more than {} bytes, which is the limit", limits_.most_bytes);
    if (code == CURLE_OPERATION_TIMEDOUT)
      return fmt::format("did not come within {:g} s, of which {:g} s are for the connection",
                         limits_.most_seconds, limits_.connect_seconds);
    if (code == CURLE_TOO_MANY_REDIRECTS)
      return fmt::format("is redirected more than {} times, which is the limit", limits_.most_redirects);
    if (code == CURLE_OK) return fmt::format("was answered with the HTTP status {}, not 200", status);
    return fmt::format("could not be fetched: {}", curl_easy_strerror(code));
  }

  const FetchLimits limits_;
};

}  // namespace

Result<std::unique_ptr<api::PictureFetcher>> make_url_fetcher(FetchLimits limits) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK)
    return Error{ErrorCode::Unavailable,
                 fmt::format("libcurl does not start: {}", curl_easy_strerror(ready))};
  return std::unique_ptr<api::PictureFetcher>(std::make_unique<UrlFetcher>(std::move(limits)));
}

}  // namespace sluice::server

#else

namespace sluice::server {

Result<std::unique_ptr<api::PictureFetcher>> make_url_fetcher(FetchLimits) {
  return Error{ErrorCode::Unsupported,
               "--allow-image-urls needs libcurl, which this program was built without"};
}

}  // namespace sluice::server

#endif
