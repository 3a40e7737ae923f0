// One request at work in an engine: its submissions, the events that come back, and the bytes made of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/service.h"
#include "engine/engine.h"

namespace sluice::server {

// Events of one request on their way from the engine's thread. What nobody has fetched yet is merged, so that a slow
// reader holds no more than its own answer.
class EventBox {
 public:
  struct Arrived {
    size_t index;  // of the submission
    engine::Event event;
  };
  // `wake` is called, from the engine's thread, when the box was empty before; it must neither block nor touch the box.
  explicit EventBox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void push(size_t index, engine::Event event);
  std::deque<Arrived> take();
  // Nobody will take any more: `wake` is let go, because the engine may keep the box for longer than what it wakes lives.
  void close();

 private:
  bool merge(size_t index, engine::Event& event);

  std::mutex mutex_;
  std::deque<Arrived> events_;
  std::function<void()> wake_;  // empty once closed
};

// Used by one thread at a time. Whatever is unfinished when it is destroyed is cancelled.
class Exchange {
 public:
  Exchange(api::Prepared prepared, engine::Engine& engine, std::function<void()> wake);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Hands everything to the engine, or nothing: then, why not.
  std::optional<api::ApiError> start();
  // Appends what can be sent now.
  void pump(std::string& out);
  // Nothing more will come.
  bool done() const { return prepared_.writer->done() || settled(); }
  // The engine has ended all of it: usage() is complete.
  bool settled() const { return finished_ == ids_.size(); }
  // Where it failed before a byte was appended.
  const api::ApiError* error() const { return prepared_.writer->error(); }
  // Ends it in the engine; no more events are asked for.
  void cancel();
  // Ends it with this error, as the client sees it.
  void fail(const api::ApiError& error, std::string& out);
  // The head of a streamed answer is out.
  void head_sent() { prepared_.writer->head_sent(); }

  bool stream() const { return prepared_.stream; }
  std::string_view content_type() const { return prepared_.writer->content_type(); }
  std::string_view ping() const { return prepared_.writer->ping(); }
  // Of the submissions that have finished.
  const engine::Usage& usage() const { return usage_; }

 private:
  void note(const EventBox::Arrived& arrived);

  api::Prepared prepared_;
  engine::Engine& engine_;
  std::shared_ptr<EventBox> box_;
  std::vector<std::optional<engine::RequestId>> ids_;  // of what has not finished
  size_t finished_ = 0;
  engine::Usage usage_;
};

}  // namespace sluice::server
