// What the engine tells about itself: metrics and snapshots.
#include <new>

#include "engine/engine.h"

namespace sluice::engine {
namespace {

constexpr size_t kWaitingInSnapshot = 100;

// Blocks without their owners.
Snapshot::Group group_now(const kv::KvManager& kv_manager, int index) {
  using State = Snapshot::Block::State;
  const kv::KvGroup& options = kv_manager.options().groups[static_cast<size_t>(index)];
  Snapshot::Group group{options.window, kv_manager.usage(index), {}};
  group.blocks.resize(static_cast<size_t>(group.usage.blocks));
  for (size_t i = 0; i < group.blocks.size(); ++i) {
    const kv::BlockUse use = kv_manager.use(index, BlockId{static_cast<int32_t>(i)});
    const State idle = use.kept ? State::Kept : State::Free;
    group.blocks[i] = {.state = use.holders > 0 ? State::Held : idle, .shared = use.holders > 1, .owner = {}};
  }
  return group;
}

WorkKind kind_of(const request::Work& work, int prompt) {
  if (work.sample_from == work.end || work.end < prompt) return WorkKind::Prefill;
  return work.end == prompt ? WorkKind::PrefillEnd : WorkKind::Decode;
}

}  // namespace

void Engine::publish_state() {
  publish_counters();
  const bool keys = keys_wanted_.exchange(false), snapshot = snapshot_wanted_.exchange(false);
  if (keys || snapshot) {
    try {
      if (keys) publish_keys();
      if (snapshot) publish_snapshot();
    } catch (const std::bad_alloc&) {  // the one before stays
    }
  }
  const std::lock_guard lock(mutex_);
  unfinished_ = output_.size() + inbox_.size();
  if (unfinished_ == 0) idle_.notify_all();
}

// REQUIRES: just planned, so that the scheduler knows every sequence.
TracedStep Engine::traced(const Flight& flight) const {
  TracedStep out{.number = flight.number};
  for (const request::Work& work : flight.step.work) {
    const sched::SequenceOwner owner = scheduler_.owner_of(work.seq);
    out.work.push_back({owner.request, work.begin, work.end, owner.prompt, kind_of(work, owner.prompt)});
  }
  out.padding = flight.step.computed_tokens() - flight.step.tokens();
  out.preempted = flight.step.preempted;
  return out;
}

void Engine::publish_counters() {
  metrics_.running.set(scheduler_.running());
  metrics_.waiting.set(scheduler_.waiting());
  metrics_.preempted.set(scheduler_.preempted());
  const sched::SchedulerCounters& planned = scheduler_.counters();
  metrics_.preempted_dropped.set(planned.preempted_dropped);
  metrics_.preempted_swapped.set(planned.preempted_swapped);
  metrics_.shares_given_back.set(planned.given_back);
  metrics_.kv_lost.set(planned.kv_lost);
  const sched::PictureCounts pictures = executor_.picture_counts();
  metrics_.pictures_encoded.set(pictures.encoded);
  metrics_.pictures_reused.set(pictures.reused);
  const kv::KvCounters& moved = kv_manager_.counters();
  metrics_.blocks_copied.set(moved.copied);
  metrics_.blocks_evicted.set(moved.evicted);
  metrics_.blocks_demoted.set(moved.demoted);
  metrics_.blocks_promoted.set(moved.promoted);
  metrics_.blocks_swapped_out.set(moved.swapped_out);
  metrics_.blocks_swapped_in.set(moved.swapped_in);
  metrics_.blocks_imported.set(moved.imported);
  metrics_.state_checkpoints.set(moved.checkpoints);
  kv::GroupUsage sum;
  for (int group = 0; group < kv_manager_.groups(); ++group) {
    const kv::GroupUsage usage = kv_manager_.usage(group);
    if (kv_manager_.is_state(group)) {
      metrics_.state_slots.set(static_cast<uint64_t>(usage.blocks));
      metrics_.states_used.set(static_cast<uint64_t>(usage.used));
      metrics_.states_cached.set(static_cast<uint64_t>(usage.cached));
      continue;
    }
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

void Engine::publish_keys() {
  if (published_keys_ && published_keys_->version == kv_manager_.published_version()) return;
  auto fresh = std::make_shared<const kv::PublishedKeys>(kv_manager_.published());
  const std::lock_guard lock(mutex_);
  published_keys_ = std::move(fresh);
}

void Engine::publish_snapshot() {
  auto fresh = std::make_shared<Snapshot>();
  fresh->step = steps_;
  fresh->waiting = scheduler_.waiting();
  for (int group = 0; group < kv_manager_.groups(); ++group)
    fresh->groups.push_back(group_now(kv_manager_, group));
  scheduler_.for_each(kWaitingInSnapshot, [&](const sched::RequestView& view) {
    fresh->requests.push_back(view);
    if (view.phase != sched::Phase::Running) return;
    for (const sched::RequestView::LaneView& lane : view.lanes) {
      for (int group = 0; group < kv_manager_.groups() && kv_manager_.contains(lane.seq); ++group) {
        std::vector<Snapshot::Block>& blocks = fresh->groups[static_cast<size_t>(group)].blocks;
        for (const BlockId block : kv_manager_.table(lane.seq, group)) {
          if (block != request::kNoBlock) blocks[static_cast<size_t>(block.value)].owner = view.id;
        }
      }
    }
  });
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(fresh);
}

}  // namespace sluice::engine
