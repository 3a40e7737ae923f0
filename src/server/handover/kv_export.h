// The KV blocks of one prompt as they are finished, and the state behind them: taken by the engine's thread, sent by a
// connection's.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/kv_access.h"
#include "kv/prefix_key.h"

namespace sluice::server {

class KvExport {
 public:
  // Blocks [first, keys.size()). `wake` is called when there is something to take.
  KvExport(engine::KvLayout layout, std::vector<kv::PrefixKey> keys, int first, std::function<void()> wake)
      : layout_(std::move(layout)), keys_(std::move(keys)), next_(first), wake_(std::move(wake)) {}

  // -- the engine's thread

  // A KvTask.
  bool run(engine::KvAccess& access);
  // Nothing more is computed: what is not there now will not come.
  void prefill_ended();

  // -- any thread

  struct Taken {
    std::string bytes;  // of the stream of kv_wire.h, without its head
    bool over = false;  // nothing more will come
  };
  // The caller wakes the engine's tasks afterwards.
  Taken take();
  // Nobody takes any more.
  void cancel();

 private:
  // Bytes that may wait to be sent.
  static constexpr size_t kMostWaiting = size_t{16} << 20;

  bool append_next(engine::KvAccess& access);

  const engine::KvLayout layout_;
  const std::vector<kv::PrefixKey> keys_;
  std::mutex mutex_;
  int next_;
  std::string ready_;
  bool prefill_ended_ = false, over_ = false, cancelled_ = false;
  std::function<void()> wake_;
};

}  // namespace sluice::server
