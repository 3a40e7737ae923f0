#include "server/handover/kv_import.h"

#include <iterator>
#include <span>
#include <utility>

namespace sluice::server {

bool KvImport::run(engine::KvAccess& access, const std::function<void()>& again) {
  const std::lock_guard lock(mutex_);
  size_t written = 0;
  while (!blocks_.empty() && written < kMostAtOnce && !full_) {
    const HandedBlock block = std::move(blocks_.front());
    blocks_.pop_front();
    bytes_ -= block.bytes.size();
    int& count = written_[static_cast<size_t>(block.group)];
    // One more would take the place of the first.
    full_ = count >= access.room(block.group) ||
            !access.write(block.group, keys_[static_cast<size_t>(block.index)],
                          std::as_bytes(std::span(block.bytes)));
    ++count;
    written += block.bytes.size();
  }
  if (full_) {
    blocks_.clear();
    bytes_ = 0;
  }
  done_ = blocks_.empty() && (closed_ || full_);
  if (done_) wake_();
  if (!done_ && !blocks_.empty()) again();
  return !done_;
}

void KvImport::add(std::vector<HandedBlock> blocks) {
  const std::lock_guard lock(mutex_);
  if (full_) return;
  for (const HandedBlock& block : blocks) bytes_ += block.bytes.size();
  blocks_.insert(blocks_.end(), std::make_move_iterator(blocks.begin()),
                 std::make_move_iterator(blocks.end()));
}

void KvImport::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

size_t KvImport::waiting() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

bool KvImport::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

}  // namespace sluice::server
