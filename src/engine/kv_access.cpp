#include "engine/kv_access.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace sluice::engine {

int KvLayout::first_needed(size_t group, int blocks) const {
  if (holds[group] == kv::KvGroup::Holds::State) return std::max(0, blocks - 1);
  if (windows[group] == 0) return 0;
  return std::max(0, blocks * block_size - windows[group] + 1) / block_size;
}

KvAccess::Known KvAccess::known(std::span<const kv::PrefixKey> keys) const {
  const auto all_have = [&](const kv::PrefixKey& key, bool states) {
    for (int group = 0; group < kv_manager_.groups(); ++group)
      if (kv_manager_.is_state(group) == states && !kv_manager_.find(group, key)) return false;
    return true;
  };
  Known known;
  for (const kv::PrefixKey& key : keys) {
    if (!all_have(key, false)) break;
    ++known.blocks;
    if (all_have(key, true)) known.usable = known.blocks;
  }
  return known;
}

bool KvAccess::read(int group, const kv::PrefixKey& key, std::string& out) {
  const std::optional<request::Place> place = kv_manager_.find(group, key);
  if (!place) return false;
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(executor_.block_bytes()[static_cast<size_t>(group)]));
  return executor_.read_block(group, *place, std::as_writable_bytes(std::span(out).subspan(begin)));
}

bool KvAccess::write(int group, const kv::PrefixKey& key, std::span<const std::byte> bytes) {
  if (kv_manager_.find(group, key)) return true;
  const std::optional<BlockId> block = kv_manager_.import(group, key);
  if (!block) return false;
  const sched::BlockWrite write{group, *block, bytes};
  executor_.write_blocks(kv_manager_.take_moves(), {&write, 1});
  return true;
}

// -- any thread

KvLayout Engine::kv_layout() const {
  KvLayout layout{options_.kv_manager.model, options_.kv_manager.block_size, {}, {}, {}};
  if (options_.kv_manager.prefix_cache) layout.block_bytes = executor_.block_bytes();
  for (const kv::KvGroup& group : options_.kv_manager.groups) {
    layout.windows.push_back(group.window);
    layout.holds.push_back(group.holds);
  }
  return layout;
}

void Engine::post(KvTask task) {
  {
    const std::lock_guard lock(mutex_);
    kv_posted_.push_back(std::move(task));
    kv_news_ = true;
  }
  changed_.notify_one();
}

void Engine::wake_kv_tasks() {
  {
    const std::lock_guard lock(mutex_);
    kv_news_ = true;
  }
  changed_.notify_one();
}

// -- the engine's thread

void Engine::run_kv_tasks() {
  std::vector<KvTask> posted;
  {
    const std::lock_guard lock(mutex_);
    kv_news_ = false;
    posted.swap(kv_posted_);
  }
  for (KvTask& task : posted) kv_tasks_.push_back(std::move(task));
  KvAccess access(kv_manager_, executor_);
  std::erase_if(kv_tasks_, [&](const KvTask& task) { return !task(access); });
}

}  // namespace sluice::engine
