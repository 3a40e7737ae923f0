#include "base/system/relay.h"

#include "base/system/thread_turn.h"
#include "base/thread_name.h"

namespace sluice {

Relay::Relay(const char* thread_name) : thread_([this, thread_name] { run(thread_name); }) {}

Relay::~Relay() {
  stopping_ = true;
  wake_.release();
  thread_.join();
}

void Relay::post(Task& task) {
  task.next = posted_.load(std::memory_order_relaxed);
  while (!posted_.compare_exchange_weak(task.next, &task, std::memory_order_release)) {
  }
  wake_.release();
}

void Relay::run(const char* thread_name) {
  name_thread(thread_name);
  shorten_thread_turns();
  while (true) {
    wake_.acquire();
    const bool is_last = stopping_;
    Task* newest = posted_.exchange(nullptr, std::memory_order_acquire);
    Task* oldest = nullptr;
    while (newest != nullptr) {
      Task* const task = newest;
      newest = task->next;
      task->next = oldest;
      oldest = task;
    }
    while (oldest != nullptr) {
      Task* const task = oldest;
      oldest = task->next;  // before its work, which may have it posted again
      task->work();
    }
    if (is_last) return;
  }
}

}  // namespace sluice
