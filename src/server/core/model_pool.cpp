#include "server/core/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/system/memory.h"
#include "base/thread_name.h"

namespace sluice::server {

namespace {

constexpr std::chrono::milliseconds kLookForStop{50};

}  // namespace

struct ModelPool::Gone {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_gone = false;
};

class ModelPool::Tenure {
 public:
  explicit Tenure(std::shared_ptr<Gone> gone) : gone_(std::move(gone)) {}
  ~Tenure() {
    const std::lock_guard lock(gone_->mutex);
    gone_->is_gone = true;
    gone_->changed.notify_all();
  }
  Tenure(const Tenure&) = delete;
  Tenure& operator=(const Tenure&) = delete;

 private:
  std::shared_ptr<Gone> gone_;
};

ModelPool::ModelPool(std::vector<Known> models) {
  for (Known& known : models) slots_.push_back({.known = std::move(known)});
}

ModelPool::~ModelPool() {
  stop();
}

Status ModelPool::open_all(const std::function<bool()>& go_on) {
  std::optional<Error> first;
  bool any = false;
  for (Slot& slot : slots_) {
    if (!go_on()) return {};
    const Status loaded = load_slot(slot);
    any |= loaded.ok();
    if (!loaded && !first) first = loaded.error();
  }
  if (!any && first) return *first;
  for (const Slot& slot : slots_)
    if (slot.state != State::Ready)
      log_error("model '{}' {}; the others are served", slot.known.name, slot.reason);
  return {};
}

std::vector<Backend> ModelPool::backends() const {
  const std::lock_guard lock(mutex_);
  return ready_backends();
}

void ModelPool::serve(Server& server) {
  server_ = &server;
  server.state().set_repository(this);
  thread_ = std::thread([this] { run(); });
  server.serve(backends(), absent_models());
}

void ModelPool::stop() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(jobs_);
  }
  changed_.notify_all();
  for (const Job& job : left) job.done(Error{ErrorCode::Unavailable, "the server is shutting down"});
  if (thread_.joinable()) thread_.join();
}

std::vector<ModelRepository::Entry> ModelPool::index() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (const Slot& slot : slots_) {
    Entry& entry = out.emplace_back(Entry{slot.known.name, "UNAVAILABLE", ""});
    if (slot.state == State::Ready) entry.state = "READY";
    if (slot.state == State::Loading) entry.state = "LOADING";
    if (slot.state == State::Unloading) entry.state = "UNLOADING";
    if (slot.state == State::Unavailable) entry.reason = slot.reason;
  }
  return out;
}

void ModelPool::load(const std::string& name, Done done) {
  post(Job::Kind::Load, name, std::move(done));
}

void ModelPool::unload(const std::string& name, Done done) {
  post(Job::Kind::Unload, name, std::move(done));
}

void ModelPool::post(Job::Kind kind, const std::string& name, Done done) {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.known.name == name; });
  if (found == slots_.end()) {
    std::string known;
    for (const Slot& slot : slots_) known += (known.empty() ? "'" : ", '") + slot.known.name + "'";
    return done(Error{ErrorCode::NotFound,
                      fmt::format("there is no model '{}' to load or unload; there are {}", name, known)});
  }
  std::unique_lock lock(mutex_);
  if (stopping_) {
    lock.unlock();
    return done(Error{ErrorCode::Unavailable, "the server is shutting down"});
  }
  jobs_.push_back({kind, static_cast<size_t>(found - slots_.begin()), std::move(done)});
  changed_.notify_all();
}

void ModelPool::run() {
  name_thread("models");
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Slot& slot = slots_[job.slot];
    Status status = job.kind == Job::Kind::Load ? load_slot(slot) : unload_slot(slot);
    job.done(std::move(status));
  }
}

Status ModelPool::load_slot(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    if (slot.state == State::Ready) return {};
    slot.state = State::Loading;
    slot.reason = "is being loaded";
  }
  if (server_ != nullptr) publish();
  Result<Backend> opened = slot.known.open();
  if (opened) {
    slot.owner = std::exchange(opened->owner, nullptr);
    slot.gone = std::make_shared<Gone>();
    opened->owner = std::make_shared<Tenure>(slot.gone);
  }
  {
    const std::lock_guard lock(mutex_);
    slot.state = opened ? State::Ready : State::Unavailable;
    slot.reason = opened ? "" : "could not be loaded: " + opened.error().message;
    if (opened) slot.backend = std::move(*opened);
  }
  if (server_ != nullptr) {
    publish();
    if (opened) log_info("model '{}' loaded", slot.known.name);
    if (!opened) log_error("model '{}' {}", slot.known.name, slot.reason);
  }
  return opened ? Status() : Status(opened.error());
}

Status ModelPool::unload_slot(Slot& slot) {
  Backend leaving;
  {
    const std::lock_guard lock(mutex_);
    if (slot.state != State::Ready) return {};
    slot.state = State::Unloading;
    slot.reason = "is being unloaded";
    std::swap(leaving, slot.backend);
  }
  leaving = {};
  publish();
  std::unique_lock lock(slot.gone->mutex);
  const auto stopped = [&] {
    const std::lock_guard own(mutex_);
    return stopping_;
  };
  while (!slot.gone->is_gone) {
    slot.gone->changed.wait_for(lock, kLookForStop);
    if (!slot.gone->is_gone && stopped()) return Error{ErrorCode::Unavailable, "the server is shutting down"};
  }
  lock.unlock();
  slot.owner.reset();
  return_unused_memory();
  {
    const std::lock_guard own(mutex_);
    slot.state = State::Unavailable;
    slot.reason = "is not loaded";
  }
  publish();
  log_info("model '{}' unloaded", slot.known.name);
  return {};
}

// REQUIRES: the mutex is held.
std::vector<Backend> ModelPool::ready_backends() const {
  std::vector<Backend> out;
  for (const Slot& slot : slots_)
    if (slot.state == State::Ready) out.push_back(slot.backend);
  return out;
}

std::vector<api::AbsentModel> ModelPool::absent_models() const {
  std::vector<api::AbsentModel> out;
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_)
    if (slot.state != State::Ready) out.push_back({slot.known.name, slot.reason});
  return out;
}

void ModelPool::publish() {
  server_->state().set_models(std::make_shared<const ModelSet>(backends(), absent_models()));
}

}  // namespace sluice::server
