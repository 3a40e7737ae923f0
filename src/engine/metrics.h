// What the engine did, counted. Written by the engine's thread, read by any: values are exact, though not all
// of one moment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "request/speculation.h"

namespace sluice::engine {

class Counter {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Values from 1e-6 (a microsecond, where they are seconds) to 2e6 in buckets that grow by an eighth of an octave, 9 %;
// what lies outside counts in the first or last one. Quantiles are within a bucket of the truth.
class Histogram {
 public:
  static constexpr double kSmallest = 1e-6;
  static constexpr int kPerOctave = 8;
  static constexpr size_t kBuckets = 41 * kPerOctave;

  void record(double value);

  uint64_t count() const { return count_.value(); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  double mean() const;
  double max() const { return max_.load(std::memory_order_relaxed); }
  // The value below which this share of all values lies; 0 where there are none.
  double quantile(double share) const;
  // The upper end of a bucket, and the values in it.
  static double upper(size_t bucket);
  uint64_t in_bucket(size_t bucket) const { return buckets_[bucket].value(); }

 private:
  std::array<Counter, kBuckets> buckets_;
  Counter count_;
  std::atomic<double> sum_{0}, max_{0};
};

struct Metrics {
  // requests
  Counter received, refused;
  Counter stopped, reached_length, cancelled, expired, failed;
  Counter corrupted;  // of the failed
  // tokens
  Counter prompt_tokens, cached_tokens, generated_tokens;
  Counter drafted_tokens, accepted_drafts;
  // Of these, by whose drafts they were. `works`: sequences' steps that verified some; what was expected of their drafts, in
  // thousandths, is in `expected` (accepted) and `cost` (time, in units of steps without drafts).
  struct Proposer {
    Counter drafted, accepted, works, expected, cost;
  };
  std::array<Proposer, request::kSpeculations> proposers;
  // steps: computed_tokens counts padding, run_tokens does not
  Counter steps, run_tokens, computed_tokens;
  Counter pictures_encoded, pictures_reused;
  Counter preempted_dropped, preempted_swapped, kv_lost;
  Counter shares_given_back, places_given_back;  // to clients that had less than their share
  Counter blocks_copied, blocks_evicted, blocks_demoted, blocks_promoted, blocks_swapped_out,
      blocks_swapped_in, blocks_imported;
  // as of the last step
  Counter running, waiting, preempted, kv_blocks, kv_used, kv_promised, kv_cached, host_used, disk_used;
  Counter state_slots, states_used, states_cached;  // of layers that keep one state per sequence
  Counter state_checkpoints;
  // seconds
  Histogram ttft, tbt, tpot, queue, prefill, decode, latency;
  // seconds of a step: the executor's, and the engine's own before and after it
  Histogram step_time, plan_time, commit_time, exposed_time;
  // numbers of things
  Histogram batch_size, step_tokens, prompt_length, output_length, kv_share, padding_share;

  // Every counter and histogram with its name and meaning, for reports.
  struct NamedCounter {
    std::string_view name, help;
    const Counter* counter;
    bool gauge;
  };
  struct NamedHistogram {
    std::string_view name, help;
    const Histogram* histogram;
  };
  std::vector<NamedCounter> counters() const;
  std::vector<NamedHistogram> histograms() const;
};

}  // namespace sluice::engine
