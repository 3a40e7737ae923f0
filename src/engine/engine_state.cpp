// What the engine tells about itself: metrics and snapshots.
#include <algorithm>

#include "engine/engine.h"

namespace sluice::engine {
namespace {

constexpr size_t kWaitingInSnapshot = 100;

}  // namespace

void Engine::publish_state() {
  publish_counters();
  if (snapshot_wanted_.exchange(false)) publish_snapshot();
  const std::lock_guard lock(mutex_);
  unfinished_ = delivery_.size() +
                static_cast<size_t>(std::count_if(inbox_.begin(), inbox_.end(), [](const Message& m) {
                  return std::holds_alternative<Arrival>(m);
                }));
  if (unfinished_ == 0) idle_.notify_all();
}

void Engine::publish_counters() {
  metrics_.running.set(scheduler_.running());
  metrics_.waiting.set(scheduler_.waiting());
  metrics_.preempted.set(scheduler_.preempted());
  const sched::SchedulerCounters& planned = scheduler_.counters();
  metrics_.preempted_dropped.set(planned.preempted_dropped);
  metrics_.preempted_swapped.set(planned.preempted_swapped);
  metrics_.kv_lost.set(planned.kv_lost);
  const cache::LedgerCounters& moved = ledger_.counters();
  metrics_.blocks_copied.set(moved.copied);
  metrics_.blocks_evicted.set(moved.evicted);
  metrics_.blocks_demoted.set(moved.demoted);
  metrics_.blocks_promoted.set(moved.promoted);
  metrics_.blocks_swapped_out.set(moved.swapped_out);
  metrics_.blocks_swapped_in.set(moved.swapped_in);
  cache::GroupUsage sum;
  for (int group = 0; group < ledger_.groups(); ++group) {
    const cache::GroupUsage usage = ledger_.usage(group);
    sum.blocks += usage.blocks;
    sum.used += usage.used;
    sum.promised += usage.promised;
    sum.cached += usage.cached;
    sum.host_used += usage.host_used;
    sum.disk_used += usage.disk_used;
  }
  metrics_.kv_blocks.set(static_cast<uint64_t>(sum.blocks));
  metrics_.kv_used.set(static_cast<uint64_t>(sum.used));
  metrics_.kv_promised.set(static_cast<uint64_t>(sum.promised));
  metrics_.kv_cached.set(static_cast<uint64_t>(sum.cached));
  metrics_.host_used.set(static_cast<uint64_t>(sum.host_used));
  metrics_.disk_used.set(static_cast<uint64_t>(sum.disk_used));
}

void Engine::publish_snapshot() {
  auto fresh = std::make_shared<Snapshot>();
  fresh->waiting = scheduler_.waiting();
  for (int group = 0; group < ledger_.groups(); ++group) {
    const cache::GroupUsage usage = ledger_.usage(group);
    fresh->groups.push_back({usage, std::vector<uint64_t>(static_cast<size_t>(usage.blocks))});
  }
  scheduler_.for_each(kWaitingInSnapshot, [&](const sched::RequestView& view) {
    fresh->requests.push_back(view);
    if (view.phase != sched::Phase::Running) return;
    for (const sched::RequestView::LaneView& lane : view.lanes) {
      for (int group = 0; group < ledger_.groups() && ledger_.contains(lane.seq); ++group) {
        std::vector<uint64_t>& owners = fresh->groups[static_cast<size_t>(group)].owners;
        for (const BlockId block : ledger_.table(lane.seq, group)) {
          if (block != cache::kNoBlock) owners[static_cast<size_t>(block.value)] = view.id.value;
        }
      }
    }
  });
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(fresh);
}

}  // namespace sluice::engine
