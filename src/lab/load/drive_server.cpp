// The client: one thread, one connection for each request, callbacks. Those of the requests that a closed loop begins with
// are made before the clock starts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "lab/load/drive.h"
#include "lab/load/stream_parser.h"

namespace sluice::lab {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

std::string head_lines(const LoadTarget& target, size_t body) {
  std::string out = fmt::format(
      "Host: {}:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
      target.host, target.port, body);
  if (!target.api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", target.api_key);
  return out + "\r\n";
}

std::string completion_text(const LoadTarget& target, const LoadRequest& request) {
  std::string body = fmt::format("{{\"model\":{},\"prompt\":", write_json(json::value(target.model)));
  if (request.text.empty()) {
    body += fmt::format("[{}]", fmt::join(request.prompt, ","));
  } else {
    body += write_json(json::value(request.text));
  }
  body += fmt::format(
      ",\"max_tokens\":{},\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{{"
      "\"include_usage\":true}}}}",
      request.output);
  return fmt::format("POST {}/completions HTTP/1.1\r\n{}{}", target.base, head_lines(target, body.size()),
                     body);
}

// One request on its way.
struct Exchange {
  explicit Exchange(asio::io_context& context) : socket(context) {}

  tcp::socket socket;
  std::string out;
  std::array<char, 16384> in{};
  StreamParser parser;
  LoadRecord record;
  bool counted = true;
};

class ServerLoad {
 public:
  ServerLoad(const LoadTarget& target, Workload& workload, const OnLoadProgress& progress)
      : target_(target),
        at_once_(at_once(workload.options())),
        dispatcher_(workload),
        progress_(progress),
        timer_(context_),
        ticker_(context_) {}

  Result<LoadResult> run() {
    error_code problem;
    tcp::resolver resolver(context_);
    endpoints_ = resolver.resolve(target_.host, target_.port, problem);
    if (problem)
      return Error{ErrorCode::Unavailable,
                   fmt::format("'{}:{}': {}", target_.host, target_.port, problem.message())};
    open_connections();
    start_ = Clock::now();
    tick();
    send_due();
    context_.run();
    LoadResult result;
    result.records = std::move(records_);
    double begin = 0, end = 0;
    for (const LoadRecord& record : result.records) {
      begin = begin == 0 ? record.start : std::min(begin, record.start);
      end = std::max(end, record.end);
    }
    result.duration = end - begin;
    return result;
  }

 private:
  using Item = std::shared_ptr<Exchange>;
  double now() const { return seconds_since(start_); }

  // Requests of a closed loop that go out in the first moment.
  static int64_t at_once(const WorkloadOptions& load) {
    if (std::isfinite(load.rate) || load.listed_times) return 0;
    const int64_t most = load.concurrency > 0 ? load.concurrency : load.requests;
    return std::min(load.duration ? most : std::min(most, load.requests), kMostReady);
  }

  // A burst of requests would measure how fast connections are made and taken: theirs are there before the clock starts.
  // Where one cannot be made, the request makes its own and says why not.
  void open_connections() {
    for (int64_t i = 0; i < at_once_; ++i) {
      auto socket = std::make_shared<tcp::socket>(context_);
      asio::async_connect(*socket, endpoints_,
                          [this, socket](const error_code& problem, const tcp::endpoint&) {
                            if (!problem) ready_.push_back(std::move(*socket));
                          });
    }
    context_.run();
    context_.restart();
    // They are made when the server's system says so, and taken by the server a little later.
    if (!ready_.empty()) std::this_thread::sleep_for(kAccepting + kAcceptingEach * ready_.size());
  }

  void send_due() {
    while (std::optional<LoadRequest> request = dispatcher_.take(now())) begin(*request);
    if (dispatcher_.done(now())) {
      ticker_.cancel();
      timer_.cancel();
      return;
    }
    const double next = dispatcher_.next_time(now());
    if (!std::isfinite(next)) return;
    timer_.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(Seconds(next)));
    timer_.async_wait([this](const error_code& problem) {
      if (!problem) send_due();
    });
  }

  void begin(const LoadRequest& request) {
    auto item = std::make_shared<Exchange>(context_);
    item->counted = request.counted;
    item->record.input = static_cast<int>(request.prompt.size());
    item->out = completion_text(target_, request);
    item->record.start = now();
    if (!ready_.empty()) {
      item->socket = std::move(ready_.front());
      ready_.pop_front();
      return send(item);
    }
    asio::async_connect(item->socket, endpoints_,
                        [this, item](const error_code& problem, const tcp::endpoint&) {
                          if (problem) return finish(item, problem.message());
                          send(item);
                        });
  }

  void send(const Item& item) {
    error_code ignored;
    item->socket.set_option(tcp::no_delay(true), ignored);
    asio::async_write(item->socket, asio::buffer(item->out), [this, item](const error_code& broken, size_t) {
      if (broken) return finish(item, broken.message());
      receive(item);
    });
  }

  void receive(const Item& item) {
    item->socket.async_read_some(
        asio::buffer(item->in), [this, item](const error_code& problem, size_t count) {
          if (problem) {
            item->parser.close();
            return finish(item, problem == asio::error::eof ? item->parser.error() : problem.message());
          }
          const StreamParser::Found found = item->parser.feed({item->in.data(), count});
          const double at = now();
          for (int i = 0; i < found.pieces; ++i) item->record.arrivals.push_back(static_cast<float>(at));
          tokens_ += found.pieces;
          if (found.done || !item->parser.error().empty()) return finish(item, item->parser.error());
          receive(item);
        });
  }

  void finish(const Item& item, const std::string& error) {
    error_code ignored;
    item->socket.close(ignored);
    LoadRecord& record = item->record;
    record.error = error;
    if (error.empty() && record.arrivals.empty()) record.error = "the answer held no text";
    record.first = record.arrivals.empty() ? now() : record.arrivals.front();
    record.end = record.arrivals.empty() ? now() : record.arrivals.back();
    record.output = item->parser.output_tokens() > 0 ? item->parser.output_tokens()
                                                     : static_cast<int>(record.arrivals.size());
    if (item->parser.prompt_tokens() > 0) record.input = item->parser.prompt_tokens();
    if (item->counted) records_.push_back(std::move(record));
    ++ended_;
    dispatcher_.ended();
    send_due();
  }

  void tick() {
    ticker_.expires_after(std::chrono::seconds(1));
    ticker_.async_wait([this](const error_code& problem) {
      if (problem) return;
      progress_({now(), ended_, dispatcher_.running(), tokens_});
      tick();
    });
  }

  static constexpr int64_t kMostReady = 4096;
  static constexpr std::chrono::milliseconds kAccepting{100};
  static constexpr std::chrono::microseconds kAcceptingEach{200};

  const LoadTarget& target_;
  int64_t at_once_;
  asio::io_context context_{1};
  Dispatcher dispatcher_;
  const OnLoadProgress& progress_;
  asio::steady_timer timer_, ticker_;
  tcp::resolver::results_type endpoints_;
  std::deque<tcp::socket> ready_;  // connections that no request has yet
  TimePoint start_{};
  std::vector<LoadRecord> records_;
  int64_t ended_ = 0, tokens_ = 0;
};

}  // namespace

Result<LoadTarget> parse_load_target(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    return Error{ErrorCode::InvalidArgument, fmt::format("--url '{}' must begin with http://", url)};
  std::string rest = url.substr(kScheme.size());
  LoadTarget target;
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    target.base = rest.substr(slash);
    rest.resize(slash);
  }
  while (target.base.ends_with('/')) target.base.pop_back();
  if (!target.base.ends_with("/v1")) target.base += "/v1";
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != rest.npos && rest.find(']', colon) == rest.npos;
  target.host = has_port ? rest.substr(0, colon) : rest;
  if (has_port) target.port = rest.substr(colon + 1);
  if (target.host.starts_with('[') && target.host.ends_with(']'))
    target.host = target.host.substr(1, target.host.size() - 2);
  if (target.host.empty())
    return Error{ErrorCode::InvalidArgument, fmt::format("--url '{}' has no host", url)};
  return target;
}

Result<std::string> first_model(const LoadTarget& target) {
  try {
    asio::io_context context;
    tcp::socket socket(context);
    asio::connect(socket, tcp::resolver(context).resolve(target.host, target.port));
    asio::write(socket, asio::buffer(
                            fmt::format("GET {}/models HTTP/1.1\r\n{}", target.base, head_lines(target, 0))));
    std::string text;
    error_code end;
    asio::read(socket, asio::dynamic_buffer(text, size_t{4} << 20), end);
    const size_t at = text.find("\"id\"");
    const size_t open = at == text.npos ? at : text.find('"', text.find(':', at));
    const size_t close = open == text.npos ? open : text.find('"', open + 1);
    if (close == text.npos)
      return Error{ErrorCode::Unavailable, fmt::format("'{}:{}' lists no model", target.host, target.port)};
    return text.substr(open + 1, close - open - 1);
  } catch (const boost::system::system_error& problem) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("'{}:{}': {}", target.host, target.port, problem.code().message())};
  }
}

Result<LoadResult> drive_server(const LoadTarget& target, Workload& workload,
                                const OnLoadProgress& progress) {
  ServerLoad load(target, workload, progress);
  return load.run();
}

}  // namespace sluice::lab
