// Takes connections from the listening socket, gives each a place in the table and a thread of its own to live on.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>

#include "base/result.h"
#include "server/core/connection_table.h"
#include "server/core/io_threads.h"
#include "server/core/server_context.h"

namespace sluice::server {

// How many connections there may be: by the options, and by the files that the process may open.
PlaceLimits connection_places(const ServerOptions& options);

// Everything but the constructor, listen(), port() and url() belongs to the first of the threads.
class Acceptor {
 public:
  // What is referred to outlives the acceptor. `left` is called on a connection's thread after it has left the table.
  struct Parts {
    ServerContext& state;
    ConnectionTable& table;
    IoThreads& threads;
    std::function<void()> left;
  };
  explicit Acceptor(Parts parts);

  // Binds the address of the options. Errors name it.
  Status listen();
  // Goes on accepting, also after a lack of memory has ended it; does nothing while it goes on or once closed.
  void keep_accepting();
  void close();

  int port() const { return endpoint_.port(); }
  std::string url() const;  // "http://127.0.0.1:8080"

 private:
  class Restart;
  boost::asio::awaitable<void> accept();
  void take(boost::asio::ip::tcp::socket socket);
  void forget(uint64_t number);
  void refuse(boost::asio::ip::tcp::socket socket);

  Parts parts_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::endpoint endpoint_;
  bool accepting_ = false;
};

}  // namespace sluice::server
