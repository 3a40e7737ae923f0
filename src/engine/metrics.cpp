#include "engine/metrics.h"

#include <algorithm>
#include <cmath>

namespace sluice::engine {

void Histogram::record(double value) {
  const double place = value > kSmallest ? std::log2(value / kSmallest) * kPerOctave : 0;
  const auto bucket = static_cast<size_t>(std::clamp(place, 0.0, double(kBuckets - 1)));
  buckets_[bucket].add();
  count_.add();
  sum_.store(sum() + value, std::memory_order_relaxed);  // one thread writes
  if (value > max()) max_.store(value, std::memory_order_relaxed);
}

double Histogram::mean() const {
  return count() == 0 ? 0 : sum() / static_cast<double>(count());
}

double Histogram::upper(size_t bucket) {
  return kSmallest * std::exp2(static_cast<double>(bucket + 1) / kPerOctave);
}

double Histogram::quantile(double share) const {
  uint64_t total = 0;
  for (const Counter& bucket : buckets_) total += bucket.value();
  if (total == 0) return 0;
  const double wanted = share * static_cast<double>(total);
  double below = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    const auto inside = static_cast<double>(in_bucket(i));
    if (inside > 0 && below + inside >= wanted) {
      const double part = (wanted - below) / inside;
      const double value = upper(i) * std::exp2((part - 1) / kPerOctave);
      return std::min(value, max());
    }
    below += inside;
  }
  return max();
}

std::vector<Metrics::NamedCounter> Metrics::counters() const {
  return {
      {"requests_received", "requests taken in", &received, false},
      {"requests_refused", "requests refused before they were taken in", &refused, false},
      {"requests_stopped", "requests ended by an end token or a stop string, or answered with a vector",
       &stopped, false},
      {"requests_reached_length", "requests ended by their token limit", &reached_length, false},
      {"requests_cancelled", "requests cancelled by their client", &cancelled, false},
      {"requests_expired", "requests whose deadline passed, or who waited too long for their turn", &expired,
       false},
      {"requests_failed", "requests ended by an error", &failed, false},
      {"requests_corrupted", "of these, by logits or states that were no numbers", &corrupted, false},
      {"prompt_tokens", "tokens of started prompts", &prompt_tokens, false},
      {"cached_tokens", "of these, found in the prefix cache", &cached_tokens, false},
      {"generated_tokens", "tokens generated", &generated_tokens, false},
      {"drafted_tokens", "guessed tokens that steps verified", &drafted_tokens, false},
      {"accepted_drafts", "of these, those that were right and saved a step", &accepted_drafts, false},
      {"steps", "steps of the device", &steps, false},
      {"run_tokens", "tokens run in steps", &run_tokens, false},
      {"computed_tokens", "tokens computed in steps, padding included", &computed_tokens, false},
      {"preemptions_recompute", "preemptions whose KV was dropped", &preempted_dropped, false},
      {"preemptions_swap", "preemptions whose KV was swapped out", &preempted_swapped, false},
      {"shares_given_back", "requests or choices that made room for a client under its share",
       &shares_given_back, false},
      {"places_given_back", "waiting requests that made room for a client under its share",
       &places_given_back, false},
      {"pictures_encoded", "tiles of pictures that the vision tower has run over", &pictures_encoded, false},
      {"pictures_reused", "tiles of pictures whose embeddings were still there", &pictures_reused, false},
      {"kv_lost", "requests whose KV could not be read back", &kv_lost, false},
      {"blocks_copied", "KV blocks copied before a write", &blocks_copied, false},
      {"blocks_evicted", "cached KV blocks lost", &blocks_evicted, false},
      {"blocks_demoted", "cached KV blocks moved to a lower tier", &blocks_demoted, false},
      {"blocks_promoted", "cached KV blocks moved back to the device", &blocks_promoted, false},
      {"blocks_swapped_out", "KV blocks of preempted requests swapped out", &blocks_swapped_out, false},
      {"blocks_swapped_in", "KV blocks of preempted requests swapped in", &blocks_swapped_in, false},
      {"blocks_imported", "KV blocks that another server computed", &blocks_imported, false},
      {"requests_running", "requests that run", &running, true},
      {"requests_waiting", "requests that have not started", &waiting, true},
      {"requests_preempted", "requests that were preempted and are not back", &preempted, true},
      {"kv_blocks", "KV blocks on the device", &kv_blocks, true},
      {"kv_blocks_used", "KV blocks in use", &kv_used, true},
      {"kv_blocks_promised", "KV blocks set aside", &kv_promised, true},
      {"kv_blocks_cached", "KV blocks kept for their content only", &kv_cached, true},
      {"kv_blocks_host", "KV blocks swapped to host memory", &host_used, true},
      {"kv_blocks_disk", "KV blocks swapped to disk", &disk_used, true},
      {"state_checkpoints", "states kept inside of prompts for those that part there", &state_checkpoints,
       false},
      {"state_slots", "slots for states of sequences on the device", &state_slots, true},
      {"state_slots_used", "slots that running sequences hold", &states_used, true},
      {"state_slots_cached", "slots whose states are kept for later prompts only", &states_cached, true},
  };
}

std::vector<Metrics::NamedHistogram> Metrics::histograms() const {
  return {
      {"ttft_seconds", "request received to first token sent", &ttft},
      {"tbt_seconds", "gap between consecutive tokens of one choice", &tbt},
      {"tpot_seconds", "mean gap between the tokens of one choice", &tpot},
      {"queue_seconds", "request received to its start", &queue},
      {"prefill_seconds", "start to first token", &prefill},
      {"decode_seconds", "first to last token", &decode},
      {"latency_seconds", "request received to its end", &latency},
      {"step_seconds",
       "time of one step in the executor, from its submission or the end of the step before it", &step_time},
      {"plan_seconds", "planning of one step", &plan_time},
      {"commit_seconds", "taking in and delivering what came of one step", &commit_time},
      {"exposed_seconds", "time before a step in which the executor had nothing to do though requests ran",
       &exposed_time},
      {"batch_size", "sequences in a step", &batch_size},
      {"step_tokens", "tokens of a step", &step_tokens},
      {"prompt_length", "tokens of a prompt", &prompt_length},
      {"output_length", "tokens of an answer", &output_length},
      {"kv_share", "share of KV blocks in use or set aside, at each step", &kv_share},
      {"padding_share", "share of a step's computed tokens that is padding", &padding_share},
  };
}

}  // namespace sluice::engine
