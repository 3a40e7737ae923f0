#include "server/handover/kv_export.h"

#include <new>
#include <utility>

#include "server/handover/kv_wire.h"

namespace sluice::server {

bool KvExport::run(engine::KvAccess& access) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  const size_t before = ready_.size();
  try {
    while (next_ < static_cast<int>(keys_.size()) && ready_.size() < kMostWaiting && append_next(access))
      ++next_;
    const bool complete = next_ == static_cast<int>(keys_.size());
    // A reader that is behind is waited for; blocks that are evicted meanwhile end the stream before its time.
    over_ = complete || (prefill_ended_ && ready_.size() < kMostWaiting);
    if (over_) append_stream_end(ready_);
    if (ready_.size() > before) wake_();
  } catch (const std::bad_alloc&) {  // the other side computes what is missing
    over_ = true;
  }
  return !over_;
}

// All of a block or nothing.
bool KvExport::append_next(engine::KvAccess& access) {
  const size_t before = ready_.size();
  for (size_t group = 0; group < layout_.block_bytes.size(); ++group) {
    if (next_ < layout_.first_needed(group, static_cast<int>(keys_.size()))) continue;
    const size_t begin = ready_.size();
    ready_.resize(begin + kBlockHead);
    if (!access.read(static_cast<int>(group), keys_[static_cast<size_t>(next_)], ready_)) {
      ready_.resize(before);
      return false;
    }
    finish_block(ready_, begin, next_, static_cast<int>(group));
  }
  return true;
}

void KvExport::prefill_ended() {
  const std::lock_guard lock(mutex_);
  prefill_ended_ = true;
}

KvExport::Taken KvExport::take() {
  const std::lock_guard lock(mutex_);
  return {std::exchange(ready_, {}), over_};
}

void KvExport::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
}

}  // namespace sluice::server
