#include "server/http/active_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "server/access/admission.h"

namespace sluice::server {

namespace {

// How far back a delta looks for one to be merged with: more choices than a request may have.
constexpr ptrdiff_t kLookBack = 256;

// What is written by one call of pump().
constexpr size_t kPumpBytes = size_t{256} << 10;

int64_t bytes_of(const std::vector<request::Sampled>& tokens) {
  int64_t bytes = 0;
  for (const request::Sampled& token : tokens)
    bytes += static_cast<int64_t>(sizeof token + token.top.size() * sizeof token.top[0]);
  return bytes;
}

int64_t bytes_of(const engine::Event& event) {
  auto bytes = static_cast<int64_t>(sizeof event);
  if (const auto* delta = std::get_if<engine::Delta>(&event))
    bytes +=
        static_cast<int64_t>(delta->text.size()) + bytes_of(delta->tokens) + bytes_of(delta->prompt_logprobs);
  if (const auto* embedding = std::get_if<engine::Embedding>(&event))
    bytes += static_cast<int64_t>(embedding->values.size() * sizeof embedding->values[0]);
  return bytes;
}

template <class T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

// Nothing is thrown: an event that there is no memory for is noted, and ends its request.
void EventBox::push(size_t index, engine::Event event) {
  const std::lock_guard lock(mutex_);
  if (!wake_) return;
  const bool was_empty = events_.empty();
  const int64_t size = bytes_of(event);
  held_ += size;
  bytes_ += size;
  try {
    if (!merge(index, event)) events_.push_back({index, std::move(event)});
    if (was_empty) wake_();
  } catch (const std::bad_alloc&) {  // the connection looks by itself after a while
    lost_ = true;
  }
}

void EventBox::close() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  events_.clear();
  bytes_ -= std::exchange(held_, 0);
}

EventBox::Taken EventBox::take() {
  const std::lock_guard lock(mutex_);
  return {std::exchange(events_, {}), std::exchange(held_, 0), lost_};
}

// Deltas of other choices may be passed; they do not depend on each other.
bool EventBox::merge(size_t index, engine::Event& event) {
  auto* fresh = std::get_if<engine::Delta>(&event);
  if (fresh == nullptr) return false;
  const auto end = events_.rbegin() + std::min<ptrdiff_t>(kLookBack, static_cast<ptrdiff_t>(events_.size()));
  for (auto at = events_.rbegin(); at != end; ++at) {
    auto* earlier = std::get_if<engine::Delta>(&at->event);
    if (at->index != index) continue;
    if (earlier == nullptr) continue;  // the end of another choice
    if (earlier->choice != fresh->choice) continue;
    move_to_end(earlier->tokens, fresh->tokens);
    move_to_end(earlier->prompt_logprobs, fresh->prompt_logprobs);
    earlier->text += fresh->text;
    return true;
  }
  return false;
}

ActiveRequest::ActiveRequest(api::EngineJob prepared, engine::Engine& engine, std::function<void()> wake,
                             AnswerBudget budget)
    : prepared_(std::move(prepared)),
      engine_(engine),
      budget_(budget),
      box_(std::make_shared<EventBox>(std::move(wake), budget.bytes)) {}

ActiveRequest::~ActiveRequest() {
  cancel();
  box_->close();
  budget_.bytes -= counted_;
}

std::optional<api::ApiError> ActiveRequest::start() {
  ids_.reserve(prepared_.submissions.size());  // what the engine has taken is not forgotten
  for (size_t i = 0; i < prepared_.submissions.size(); ++i) {
    engine::Submission& submission = prepared_.submissions[i];
    submission.deliver = [box = box_, i](engine::Event event) { box->push(i, std::move(event)); };
    Result<engine::RequestId> id = engine_.submit(std::move(submission));
    if (id) {
      ids_.emplace_back(*id);
      continue;
    }
    cancel();
    if (id.error().code == ErrorCode::Unavailable && !engine_.health().failed)
      return overloaded(id.error().message);
    return api::to_api_error(id.error());
  }
  prepared_.submissions.clear();
  return std::nullopt;
}

void ActiveRequest::note(const EventBox::Arrived& arrived) {
  const auto* last = std::get_if<engine::Finished>(&arrived.event);
  if (last == nullptr) return;
  ids_[arrived.index].reset();
  ++finished_;
  usage_.prompt_tokens += last->usage.prompt_tokens;
  usage_.cached_tokens += last->usage.cached_tokens;
  usage_.generated_tokens += last->usage.generated_tokens;
}

// Streams hold what was not written yet; other answers hold all of it to the end.
void ActiveRequest::fetch(std::string& out) {
  EventBox::Taken taken = box_->take();
  if (stream() && arrived_.empty()) budget_.bytes -= std::exchange(counted_, 0);
  counted_ += taken.bytes;
  for (EventBox::Arrived& arrived : taken.events) arrived_.push_back(std::move(arrived));
  if (taken.lost) fail(overloaded("there is not enough memory for this answer"), out);
  if (budget_.bytes > budget_.limit && counted_ > 0)
    fail(overloaded(fmt::format("the answers that are being made take more than {} bytes", budget_.limit)),
         out);
}

void ActiveRequest::pump(std::string& out) {
  fetch(out);
  while (!arrived_.empty() && out.size() < kPumpBytes) {
    const EventBox::Arrived arrived = std::move(arrived_.front());
    arrived_.pop_front();
    note(arrived);
    if (!prepared_.writer->done()) prepared_.writer->take(arrived.index, arrived.event, out);
  }
  while (prepared_.writer->has_more() && out.size() < kPumpBytes) prepared_.writer->next_piece(out);
}

void ActiveRequest::cancel() noexcept {
  for (std::optional<engine::RequestId>& id : ids_)
    if (id) engine_.cancel(*std::exchange(id, std::nullopt));
}

void ActiveRequest::fail(const api::ApiError& error, std::string& out) {
  cancel();
  if (!prepared_.writer->done()) prepared_.writer->fail(error, out);
}

}  // namespace sluice::server
