// A server on a free port with an engine that invents tokens, and two operations of its own: what is tested here is the
// server, not the dialects.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/core/server.h"
#include "tests/engine/answer.h"
#include "tests/engine/fake_executor.h"
#include "tests/server/client.h"

namespace sluice::server {

// Steps take time, and can be held up altogether.
class PacedExecutor : public sim::FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  ~PacedExecutor() override { release(); }

  Result<std::vector<request::Outcome>> collect() override {
    std::this_thread::sleep_for(std::chrono::microseconds(step_us.load()));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_ || passes_ > 0; });
    passes_ = std::max(0, passes_ - 1);
    if (broken) return Error{ErrorCode::Internal, "the device fell over"};
    return FakeExecutor::collect();
  }
  Status reset() override {
    return broken ? Status(Error{ErrorCode::Unavailable, "the device is gone"}) : FakeExecutor::reset();
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  // One step, while held up.
  void pass() {
    const std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  std::atomic<int> step_us{0};
  std::atomic<bool> broken{false};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int passes_ = 0;
};

// POST /v1/chat/completions {"prompt": tokens, "max_tokens": n, "stream": bool}; "fail": an error of the reader,
// "throw": an exception in it. Streams send one event a delta and "data: [DONE]"; others the number of tokens.
std::vector<api::Operation> test_operations();

struct RigOptions {
  ServerOptions server;
  engine::EngineOptions engine = sim::small_options();
  std::vector<api::Operation> operations = test_operations();
  bool signals = false;
};

class Rig {
 public:
  explicit Rig(RigOptions options = {});
  ~Rig();

  int port() const { return server->port(); }
  Client connect(int receive_buffer = 0) const { return Client(port(), receive_buffer); }
  Client connect_from(const char* address) const { return Client(port(), 0, address); }
  Response ask_from(const char* address, const std::string& request) const {
    Client client = connect_from(address);
    client.send(request);
    return client.read_response();
  }
  Response ask(const std::string& request) const {
    Client client = connect();
    client.send(request);
    return client.read_response();
  }
  engine::Engine& engine() { return *engine_; }
  HttpMetrics& metrics() { return server->state().metrics(); }
  // No request runs or waits and no block is in use.
  bool engine_is_empty() const;

  PacedExecutor executor;
  std::unique_ptr<Server> server;

 private:
  std::unique_ptr<engine::Engine> engine_;
};

// Waits until `holds`; as long as it takes on a busy machine, not for ever.
bool eventually(const std::function<bool()>& holds, double seconds = 30);

std::string get(const std::string& path, const std::string& fields = "");
std::string post(const std::string& body, const std::string& fields = "",
                 const std::string& path = "/v1/chat/completions");
// A completion of so many tokens, streamed.
std::string stream_of(int tokens, int first = 1);

}  // namespace sluice::server
