// One client's connection to the router: requests are read whole, and answers passed on byte by byte.
//
// Expressions with co_await hold no temporaries of class type but awaitables: GCC 12 destroys some of them twice.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "route/core.h"
#include "server/access/admission.h"
#include "server/http/http.h"

namespace sluice::route {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Core& core);
  ~Session();

  void start();
  // Closes the connection where no request is under way, or else after it.
  void end_soon();

 private:
  static constexpr size_t kPiece = size_t{16} << 10;  // bytes read at once

  // A request on its way through a replica.
  struct Flow;
  enum class Outcome : uint8_t {
    Done,    // the answer was passed on whole
    Retry,   // nothing was passed on; another replica may do better
    Broken,  // the answer ended in the midst, or the client left
  };

  asio::awaitable<void> serve();
  asio::awaitable<bool> read_request();
  asio::awaitable<bool> answer();
  asio::awaitable<bool> put(server::Reply reply);
  std::optional<server::Reply> own_reply() const;
  asio::awaitable<bool> forward();
  asio::awaitable<PromptBlocks> read_prompt();
  asio::awaitable<bool> wait_for_place();
  asio::awaitable<Outcome> relay(Flow& flow);
  asio::awaitable<bool> send_upstream(Flow& flow);
  asio::awaitable<Outcome> pass_on(Flow& flow);
  std::string request_bytes(size_t replica, const ReplicaState* prefill);
  std::string key_lines() const;
  std::string client_name() const;
  void set_deadline(double seconds);
  void watch_client(const std::shared_ptr<tcp::socket>& upstream);
  void cut();

  tcp::socket client_;
  Core& core_;
  std::string peer_;
  asio::steady_timer deadline_, place_;
  server::RequestParser parser_;
  std::string input_;
  TimePoint received_{};
  bool idle_ = true, closing_ = false, gone_ = false;
};

}  // namespace sluice::route
