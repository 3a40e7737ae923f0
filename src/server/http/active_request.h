// One request at work in an engine: its submissions, the events that come back, and the bytes made of them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/core/service.h"
#include "engine/engine.h"

namespace sluice::server {

// Events of one request on their way from the engine's thread. What nobody has fetched yet is merged, so that a slow
// reader holds no more than its own answer.
//
// Bytes of events count in a budget from the moment they come until they are taken.
class EventBox {
 public:
  struct Arrived {
    size_t index;  // of the submission
    engine::Event event;
  };
  // `wake` is called, from the engine's thread, when the box was empty before; it must neither block nor touch the box.
  // `bytes` counts what is held; it is not touched after close(), which the box may outlive by far.
  EventBox(std::function<void()> wake, std::atomic<int64_t>& bytes) : wake_(std::move(wake)), bytes_(bytes) {}

  void push(size_t index, engine::Event event);
  struct Taken {
    std::deque<Arrived> events;
    int64_t bytes = 0;  // which the taker counts from now on
    bool lost = false;  // there was no memory for an event
  };
  Taken take();
  // Nobody will take any more: `wake` is let go, because the engine may keep the box for longer than what it wakes lives.
  void close();

 private:
  bool merge(size_t index, engine::Event& event);

  std::mutex mutex_;
  std::deque<Arrived> events_;
  std::function<void()> wake_;  // empty once closed
  std::atomic<int64_t>& bytes_;
  int64_t held_ = 0;
  bool lost_ = false;
};

// What all answers that are being made may take.
struct AnswerBudget {
  std::atomic<int64_t>& bytes;
  int64_t limit = 0;
};

// Used by one thread at a time. Whatever is unfinished when it is destroyed is cancelled.
class ActiveRequest {
 public:
  ActiveRequest(api::EngineJob prepared, engine::Engine& engine, std::function<void()> wake,
                AnswerBudget budget);
  ~ActiveRequest();
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  // Hands everything to the engine, or nothing: then, why not.
  std::optional<api::ApiError> start();
  // Appends what can be sent now, and of much only a part: has_more() tells.
  void pump(std::string& out);
  bool has_more() const { return !arrived_.empty() || prepared_.writer->has_more(); }
  // Nothing more will come.
  bool done() const { return prepared_.writer->done() || settled(); }
  // The engine has ended all of it: usage() is complete.
  bool settled() const { return finished_ == ids_.size(); }
  // Where it failed before a byte was appended.
  const api::ApiError* error() const { return prepared_.writer->error(); }
  // Ends it in the engine; no more events are asked for.
  void cancel() noexcept;
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
  void fetch(std::string& out);

  api::EngineJob prepared_;
  engine::Engine& engine_;
  AnswerBudget budget_;
  std::shared_ptr<EventBox> box_;
  std::deque<EventBox::Arrived> arrived_;              // and not written yet
  int64_t counted_ = 0;                                // bytes of the budget, besides those of the box
  std::vector<std::optional<engine::RequestId>> ids_;  // of what has not finished nor been cancelled
  size_t finished_ = 0;
  engine::Usage usage_;
};

}  // namespace sluice::server
