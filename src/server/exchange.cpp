#include "server/exchange.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/gate.h"

namespace sluice::server {

namespace {

// How far back a delta looks for one to be merged with: more choices than a request may have.
constexpr ptrdiff_t kLookBack = 256;

template <class T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void EventBox::push(size_t index, engine::Event event) {
  const std::lock_guard lock(mutex_);
  if (!wake_) return;
  const bool was_empty = events_.empty();
  if (!merge(index, event)) events_.push_back({index, std::move(event)});
  if (was_empty) wake_();
}

void EventBox::close() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  events_.clear();
}

std::deque<EventBox::Arrived> EventBox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
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

Exchange::Exchange(api::Prepared prepared, engine::Engine& engine, std::function<void()> wake)
    : prepared_(std::move(prepared)), engine_(engine), box_(std::make_shared<EventBox>(std::move(wake))) {}

Exchange::~Exchange() {
  cancel();
  box_->close();
}

std::optional<api::ApiError> Exchange::start() {
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

void Exchange::note(const EventBox::Arrived& arrived) {
  const auto* last = std::get_if<engine::Finished>(&arrived.event);
  if (last == nullptr) return;
  ids_[arrived.index].reset();
  ++finished_;
  usage_.prompt_tokens += last->usage.prompt_tokens;
  usage_.cached_tokens += last->usage.cached_tokens;
  usage_.generated_tokens += last->usage.generated_tokens;
}

void Exchange::pump(std::string& out) {
  for (const EventBox::Arrived& arrived : box_->take()) {
    note(arrived);
    if (!prepared_.writer->done()) prepared_.writer->take(arrived.index, arrived.event, out);
  }
}

void Exchange::cancel() {
  for (const std::optional<engine::RequestId>& id : ids_)
    if (id) engine_.cancel(*id);
}

void Exchange::fail(const api::ApiError& error, std::string& out) {
  cancel();
  if (!prepared_.writer->done()) prepared_.writer->fail(error, out);
}

}  // namespace sluice::server
