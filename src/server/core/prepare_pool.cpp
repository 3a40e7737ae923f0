#include "server/core/prepare_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "base/system/memory.h"
#include "base/system/thread_clock.h"
#include "base/system/thread_turn.h"
#include "base/thread_name.h"

namespace sluice::server {

namespace {

// Jobs that may be paused at once, for each slot: each keeps its thread and what it has made so far.
constexpr size_t kPausedPerSlot = 3;

// Seconds of the processor behind which a thread looks for memory to give back, which takes some of a millisecond.
constexpr double kMuchWork = 0.01;

double thread_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Clock::rep ticks_now() {
  return Clock::now().time_since_epoch().count();
}

}  // namespace

void PreparePool::Job::begin() {
  cpu_begin_ = thread_seconds();
  turn_begin_ = Clock::now();
  progress_at_ = ticks_now();
}

Status PreparePool::Job::stop(Stop why) {
  stopped_ = why;
  if (why == Stop::Cancelled) return Error{ErrorCode::Unavailable, "the request was cancelled"};
  return Error{ErrorCode::LimitExceeded,
               fmt::format("reading the request takes more than {:g} s", pool_->options_.time_limit)};
}

Status PreparePool::Job::check() {
  if (cancelled_) return stop(Stop::Cancelled);
  const TimePoint now = Clock::now();
  progress_at_ = now.time_since_epoch().count();
  if (pool_->options_.niceness > 0) (void)end_long_turn();
  if (seconds_between(turn_begin_, now) < pool_->options_.turn) return {};
  const double limit = pool_->options_.time_limit;
  if (limit > 0 && thread_seconds() - cpu_begin_ > limit) return stop(Stop::TimeLimit);
  pool_->relay(offer_turn_);
  resume_.acquire();
  turn_begin_ = Clock::now();
  progress_at_ = ticks_now();
  return cancelled_ ? stop(Stop::Cancelled) : Status();
}

PreparePool::PreparePool(Options options)
    : options_(options), most_paused_(kPausedPerSlot * static_cast<size_t>(options.slots)) {
  if (options.niceness > 0) relay_ = std::make_unique<Relay>("prepare-relay");
  // Enough for every slot though all that may be paused are.
  const size_t threads = static_cast<size_t>(options.slots) + most_paused_;
  idle_.reserve(threads);
  begun_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) {
    Worker& worker = workers_.emplace_back();
    worker.finish.work = [this, &worker] { finish(worker); };
    idle_.push_back(&worker);
  }
  for (Worker& worker : workers_) worker.thread = std::thread([this, &worker] { run(worker); });
}

PreparePool::~PreparePool() {
  stop();
}

PreparePool::Client& PreparePool::place_of(std::string_view client) {
  for (Client& one : ring_)
    if (one.name == client) return one;
  return ring_.emplace_back(Client{std::string(client), {}});
}

std::shared_ptr<PreparePool::Job> PreparePool::post(std::string_view client, std::function<void(Job&)> work,
                                                    std::function<void()> done) {
  auto job = std::make_shared<Job>();
  job->pool_ = this;
  job->client_ = client;
  job->work_ = std::move(work);
  job->done_ = std::move(done);
  job->offer_turn_.work = [this, one = job.get()] { offer_turn(*one); };
  const std::lock_guard lock(mutex_);
  Client& place = place_of(client);
  try {
    place.jobs.push_back(job);
  } catch (const std::bad_alloc&) {
    ring_.remove_if([](const Client& one) { return one.jobs.empty(); });
    throw;
  }
  dispatch();
  return job;
}

void PreparePool::cancel(Job& job) {
  std::function<void(Job&)> dropped;  // both destroyed without the lock
  std::function<void()> dropped_done;
  const std::lock_guard lock(mutex_);
  job.cancelled_ = true;
  if (job.paused_) return;
  for (Client& client : ring_) {
    const auto found = std::find_if(client.jobs.begin(), client.jobs.end(),
                                    [&](const std::shared_ptr<Job>& one) { return one.get() == &job; });
    if (found == client.jobs.end()) continue;
    dropped = std::move(job.work_);
    dropped_done = std::move(job.done_);
    client.jobs.erase(found);
    break;
  }
  ring_.remove_if([](const Client& client) { return client.jobs.empty(); });
}

// Gives free slots to those whose turn it is. REQUIRES: mutex_ is held.
void PreparePool::dispatch() {
  while (running_ < static_cast<size_t>(options_.slots) && !ring_.empty()) {
    Client& next = ring_.front();
    std::shared_ptr<Job> job = std::move(next.jobs.front());
    next.jobs.pop_front();
    if (next.jobs.empty()) {
      ring_.pop_front();
    } else {
      ring_.splice(ring_.end(), ring_, ring_.begin());
    }
    if (job->paused_) {
      resume(*job);
      continue;
    }
    Worker& worker = *idle_.back();
    idle_.pop_back();
    begin(worker, std::move(job));
  }
}

// REQUIRES: mutex_ is held, and the worker is not of idle_.
void PreparePool::begin(Worker& worker, std::shared_ptr<Job> job) {
  ++running_;
  begun_.push_back(job.get());
  worker.job = std::move(job);
  worker.begin.release();
}

void PreparePool::run_on_idle(void (*work)()) {
  const std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    auto job = std::make_shared<Job>();
    job->pool_ = this;
    job->work_ = [work](Job&) { work(); };
    Worker& worker = *idle_.back();
    idle_.pop_back();
    begin(worker, std::move(job));
  }
}

// REQUIRES: mutex_ is held.
void PreparePool::resume(Job& job) {
  job.paused_ = false;
  --paused_;
  ++running_;
  job.resume_.release();
}

bool PreparePool::others_wait(const Job& job) const {
  return std::any_of(ring_.begin(), ring_.end(),
                     [&](const Client& client) { return client.name != job.client_; });
}

// Lets others have the job's slot, where they wait; the job goes on when it is its turn.
void PreparePool::offer_turn(Job& job) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || job.cancelled_ || paused_ >= most_paused_ || !others_wait(job))
    return job.resume_.release();
  try {
    place_of(job.client_).jobs.push_front(job.shared_from_this());
  } catch (const std::bad_alloc&) {  // it goes on
    ring_.remove_if([](const Client& one) { return one.jobs.empty(); });
    return job.resume_.release();
  }
  job.paused_ = true;
  ++paused_;
  --running_;
  dispatch();
}

void PreparePool::relay(Relay::Task& task) {
  if (relay_ != nullptr) return relay_->post(task);
  task.work();
}

void PreparePool::run(Worker& worker) {
  name_thread("prepare");
  if (options_.niceness > 0) {
    lower_thread_priority(options_.niceness);
    shorten_thread_turns();
  }
  while (true) {
    worker.begin.acquire();
    if (worker.job == nullptr) return;
    Job& job = *worker.job;
    job.begin();
    if (!job.cancelled_) job.work_(job);
    job.work_ = nullptr;
    const bool has_taken_much = thread_seconds() - job.cpu_begin_ > kMuchWork;
    relay(worker.finish);
    if (has_taken_much) return_thread_memory();
  }
}

void PreparePool::finish(Worker& worker) {
  const std::shared_ptr<Job> job = std::move(worker.job);
  if (job->done_) job->done_();
  job->done_ = nullptr;
  const std::lock_guard lock(mutex_);
  std::erase(begun_, job.get());
  --running_;
  if (stopping_) return worker.begin.release();
  idle_.push_back(&worker);
  dispatch();
}

void PreparePool::stop() {
  std::list<Client> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(ring_);
    for (Job* job : begun_) {
      job->cancelled_ = true;
      if (job->paused_) resume(*job);
    }
    for (Worker* worker : idle_) worker->begin.release();
    idle_.clear();
  }
  for (Worker& worker : workers_) worker.thread.join();
  workers_.clear();
}

double PreparePool::stalled() const {
  const std::lock_guard lock(mutex_);
  double longest = 0;
  for (const Job* job : begun_) {
    const Clock::rep ticks = job->progress_at_;
    const TimePoint seen{Clock::duration(ticks)};
    if (ticks != 0 && !job->paused_) longest = std::max(longest, seconds_since(seen));
  }
  return longest;
}

}  // namespace sluice::server
