// KV blocks and states that another server has computed, on their way into the cache: brought by a connection's thread,
// written by the engine's, a few between two steps, so that running answers do not wait for them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/kv_access.h"
#include "kv/prefix_key.h"
#include "server/handover/kv_wire.h"

namespace sluice::server {

class KvImport {
 public:
  // `wake` is called when the last block is written, and when there is no room for more.
  KvImport(size_t groups, std::vector<kv::PrefixKey> keys, std::function<void()> wake)
      : keys_(std::move(keys)), written_(groups), wake_(std::move(wake)) {}

  // -- the engine's thread

  // A KvTask. `again` has it called once more though no step has run.
  bool run(engine::KvAccess& access, const std::function<void()>& again);

  // -- any thread

  // The caller wakes the engine's tasks afterwards.
  void add(std::vector<HandedBlock> blocks);
  // Nothing more is added.
  void close();
  // Bytes that are not written yet.
  size_t waiting() const;
  // All that was added is written, or there is no room for it.
  bool done() const;

 private:
  // Bytes written between two steps: at 4 GB/s a quarter of a millisecond.
  static constexpr size_t kMostAtOnce = size_t{1} << 20;

  const std::vector<kv::PrefixKey> keys_;
  mutable std::mutex mutex_;
  std::deque<HandedBlock> blocks_;
  size_t bytes_ = 0;          // of these
  std::vector<int> written_;  // per group
  bool closed_ = false, full_ = false, done_ = false;
  std::function<void()> wake_;
};

}  // namespace sluice::server
