// A server that answers every completion by the clock: the first token after a given time, then one at equal gaps.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <boost/asio.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace sluice::lab {

struct Script {
  double ttft = 0.1, gap = 0.05;  // seconds
  int tokens = 20;
};

class ScriptedServer {
 public:
  explicit ScriptedServer(Script script)
      : script_(script), acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}) {
    acceptor_.listen(4096);
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~ScriptedServer() {
    context_.stop();
    thread_.join();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  // Connections that were there when the first request was read.
  int connected_at_first() const { return connected_at_first_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    explicit Answer(boost::asio::ip::tcp::socket taken)
        : socket(std::move(taken)), timer(socket.get_executor()) {}
    boost::asio::ip::tcp::socket socket;
    boost::asio::steady_timer timer;
    std::string in, out;
    Clock::time_point start;
    int sent = 0;
  };
  using Item = std::shared_ptr<Answer>;

  void accept() {
    acceptor_.async_accept(
        [this](const boost::system::error_code& problem, boost::asio::ip::tcp::socket socket) {
          if (problem) return;
          socket.set_option(boost::asio::ip::tcp::no_delay(true));
          ++connected_;
          receive(std::make_shared<Answer>(std::move(socket)));
          accept();
        });
  }

  void receive(const Item& item) {
    auto buffer = boost::asio::dynamic_buffer(item->in);
    boost::asio::async_read_until(item->socket, buffer, "\r\n\r\n",
                                  [this, item](const boost::system::error_code& problem, size_t) {
                                    if (problem) return;
                                    item->start = Clock::now();
                                    if (connected_at_first_ == 0) connected_at_first_ = connected_;
                                    item->out = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                                    wait(item);
                                  });
  }

  void wait(const Item& item) {
    const double after = script_.ttft + item->sent * script_.gap;
    item->timer.expires_at(item->start +
                           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(after)));
    item->timer.async_wait([this, item](const boost::system::error_code& problem) {
      if (!problem) send(item);
    });
  }

  void send(const Item& item) {
    const bool last = ++item->sent == script_.tokens;
    std::string body = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n";
    if (last)
      body += fmt::format(
          "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":8,\"completion_tokens\":{}}}}}\n\ndata: "
          "[DONE]\n\n",
          script_.tokens);
    item->out += fmt::format("{:x}\r\n{}\r\n{}", body.size(), body, last ? "0\r\n\r\n" : "");
    boost::asio::async_write(item->socket, boost::asio::buffer(item->out),
                             [this, item, last](const boost::system::error_code& problem, size_t) {
                               item->out.clear();
                               if (!problem && !last) wait(item);
                             });
  }

  Script script_;
  int connected_ = 0;
  std::atomic<int> connected_at_first_{0};
  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace sluice::lab
