// A random workload and the engine it runs on.
#pragma once

#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/fake_executor.h"

namespace sluice::sim {

struct World {
  uint64_t seed = 1;  // of requests, arrivals, cancels and faults
  int scheme = 3;     // of sched::kSchemes
  bool padded = false, separate = false, preallocate = false, swap = false;
  bool prefix_cache = true, kv_cache = true, windowed = false;
  bool faults = false, searches = false;
  int depth = 1, block_size = 4, blocks = 16, host_blocks = 0, disk_blocks = 0;
  int max_seqs = 4, budget = 16, requests = 8;
  int rope_sets = 1, rope_limit = 0;  // sets of rotary frequencies and the length from which on they differ
  bool rope_kept = false;             // what is computed stays as it is; otherwise there are two sets at most
  int drafts = 0;                     // tokens guessed after each sampled one
  int state_slots = 0;                // of recurrent layers; 0: there are none
};

std::ostream& operator<<(std::ostream& out, const World& world);

class Simulation {
 public:
  explicit Simulation(const World& world);

  // Runs the workload to its end. What was wrong, or nothing.
  std::string run();

  const engine::Engine& engine() const { return *engine_; }
  const FakeExecutor& executor() const { return *executor_; }

 private:
  // Checks every step against the limits it was planned under.
  class CheckedExecutor : public FakeExecutor {
   public:
    CheckedExecutor(const World& world, const kv::KvManagerOptions& options)
        : FakeExecutor(options, world.depth, options_for(world).scheduler.rope), world_(world) {}
    void submit(const Step& step) override;
    std::string broken_limit;

   private:
    World world_;
  };
  struct Sent {
    Request request;
    int at = 0, cancel_at = -1;  // steps
    std::optional<Seconds> time_limit;
    std::optional<Token> stop_at;  // its text ends at this token
    RequestId id;
    bool refused = false;
    int finished = 0;  // last events
    bool after_end = false;
    engine::Finished last;
    std::map<int, std::vector<Token>> tokens;  // by choice
    std::vector<Token> logged;  // tokens of the prompt, in the order of their log-probabilities
    std::vector<std::vector<float>> vectors;
  };

  static engine::EngineOptions options_for(const World& world);
  Request random_request();
  void add_input(Request& request);
  void plan_workload();
  void add_faults();
  void submit(Sent& sent);
  void take(Sent& sent, engine::Event event);
  bool step(int number);
  std::string check_step() const;
  std::string check_end() const;
  std::string check_answer(const Sent& sent) const;
  // What is wrong, or null.
  static const char* check_tokens(const Sent& sent, bool complete);
  static const char* check_vector(const Sent& sent, bool complete);
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  World world_;
  std::mt19937_64 random_;
  TimePoint now_{};
  std::vector<std::vector<Token>> stems_;  // beginnings that prompts share
  std::vector<std::unique_ptr<Sent>> sent_;
  engine::Trace::Cursor cursor_;
  std::unique_ptr<CheckedExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace sluice::sim
