#include "lab/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/system/memory.h"
#include "runtime/model_runner.h"

namespace sluice::lab {

namespace {

int largest(const std::vector<int>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// A model with sequences of its own: sequence s has the s-th run of blocks in every group, and the s-th slot of states.
class Track {
 public:
  static Result<std::unique_ptr<Track>> make(const models::Model& model, const SpeedOptions& options,
                                             int sequences, int positions) {
    const int blocks = (positions + options.block_size - 1) / options.block_size;
    auto track = std::unique_ptr<Track>(new Track(model, options, blocks));
    const runtime::KvGroups kv = runtime::kv_groups(model.spec());
    const size_t groups = kv.count();
    runtime::KvMemoryOptions memory{options.block_size, options.kv_type,
                                    std::vector<int>(groups, static_cast<int>(int64_t{blocks} * sequences))};
    if (kv.states) memory.blocks[static_cast<size_t>(*kv.states)] = sequences;
    const std::vector<int> none(groups, 0);
    Result<std::unique_ptr<runtime::ModelRunner>> runner = runtime::ModelRunner::make(
        model, memory, {.host_blocks = none, .disk_blocks = none, .disk_folder = ""});
    if (!runner) return runner.error();
    track->runner_ = std::move(*runner);
    track->groups_ = static_cast<int>(groups);
    track->sequences_ = sequences;
    return track;
  }

  // Gives every sequence `depth` positions of content.
  void fill(int depth) {
    read_prompt(0, depth);
    const int used = (depth + options_.block_size - 1) / options_.block_size;
    runtime::KvMemory& memory = runner_->memory();
    for (int sequence = 1; sequence < sequences_; ++sequence)
      for (int group = 0; group < groups_; ++group)
        for (int i = 0; i < (memory.is_state(group) ? std::min(used, 1) : used); ++i)
          memory.copy_block(group, BlockId{i},
                            memory.is_state(group) ? BlockId{sequence} : BlockId{sequence * blocks_ + i});
  }

  // Runs `tokens` positions of sequence 0 behind the first `begin`, in steps, with logits for the last one.
  void read_prompt(int begin, int tokens) {
    const int end = begin + tokens;
    for (int from = begin; from < end; from += options_.step_tokens) {
      const int count = std::min(options_.step_tokens, end - from);
      runtime::Batch batch(groups_, runner_->memory().state_group());
      add(batch, 0, from, count);
      runner_->forward(batch);
    }
    const int32_t last = (tokens - 1) % options_.step_tokens;
    if (tokens > 0) runner_->read({&last, 1}, {.logits = true}, rows_);
  }

  // One token for each of the first `batch` sequences at this position.
  void write_token(int batch_size, int position) {
    runtime::Batch batch(groups_, runner_->memory().state_group());
    for (int sequence = 0; sequence < batch_size; ++sequence) add(batch, sequence, position, 1);
    runner_->forward(batch);
    std::vector<int32_t> rows(static_cast<size_t>(batch_size));
    std::iota(rows.begin(), rows.end(), 0);
    runner_->read(rows, {.logits = true}, rows_);
  }

 private:
  Track(const models::Model& model, const SpeedOptions& options, int blocks)
      : model_(model), options_(options), blocks_(blocks), state_(options.seed) {}

  void add(runtime::Batch& batch, int sequence, int begin, int count) {
    std::vector<Token> tokens(static_cast<size_t>(count));
    for (Token& token : tokens) token = next_token();
    const int used = (begin + count + options_.block_size - 1) / options_.block_size;
    std::vector<BlockId> table;
    for (int i = 0; i < used; ++i) table.push_back(BlockId{sequence * blocks_ + i});
    std::vector<std::span<const BlockId>> tables(static_cast<size_t>(groups_), table);
    const std::vector<BlockId> one_slot(table.size(), BlockId{sequence});
    if (const auto states = runner_->memory().state_group())
      tables[static_cast<size_t>(states->group)] = one_slot;
    batch.add(tokens, begin, tables);
  }

  // Steele, Lea and Flood's SplitMix64.
  Token next_token() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<Token>((z ^ (z >> 31)) % static_cast<uint64_t>(model_.spec().vocab));
  }

  const models::Model& model_;
  SpeedOptions options_;
  int blocks_;  // of one sequence
  uint64_t state_;
  std::unique_ptr<runtime::ModelRunner> runner_;
  runtime::ModelRunner::Rows rows_;
  int groups_ = 0, sequences_ = 0;
};

Floor floor_of(const models::Model& model, const SpeedOptions& options, const SpeedTest& test,
               const Limits& limits) {
  if (test.kind == SpeedTest::Kind::Answer) {
    const StepShape middle{test.batch, 1, test.depth + (test.tokens - 1) / 2.0};
    const Floor step = step_floor(step_cost(model, options.kv_type, middle), limits);
    return {step.seconds * test.tokens, step.bound};
  }
  Floor sum;
  for (int begin = 0; begin < test.tokens; begin += options.step_tokens) {
    const StepShape shape{1, std::min(options.step_tokens, test.tokens - begin), double(test.depth + begin)};
    const Floor step = step_floor(step_cost(model, options.kv_type, shape), limits);
    sum = {sum.seconds + step.seconds, step.bound};
  }
  return sum;
}

void run_once(Track& track, const SpeedTest& test) {
  if (test.kind == SpeedTest::Kind::Prompt) {
    track.read_prompt(test.depth, test.tokens);
    return;
  }
  for (int i = 0; i < test.tokens; ++i) track.write_token(test.batch, test.depth + i);
}

void warm_up(Track& track, SpeedTest test) {
  if (test.kind == SpeedTest::Kind::Answer) test.tokens = std::min(test.tokens, 2);
  run_once(track, test);
}

std::vector<SpeedTest> tests_at(const SpeedOptions& options, int depth) {
  std::vector<SpeedTest> tests;
  for (int tokens : options.prompts) tests.push_back({SpeedTest::Kind::Prompt, tokens, 1, depth});
  for (int tokens : options.answers)
    for (int batch : options.batches) tests.push_back({SpeedTest::Kind::Answer, tokens, batch, depth});
  return tests;
}

Status check(const models::Model& model, const SpeedOptions& options) {
  const int positions =
      largest(options.depths) + std::max(largest(options.prompts), largest(options.answers));
  if (positions > model.spec().context)
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("depth and tokens make {} positions, the model has {}", positions, model.spec().context)};
  const int64_t bytes = models::kv_bytes_per_token(model.spec(), options.kv_type) * positions *
                        std::max(1, largest(options.batches));
  const int64_t free = memory_room().bytes;
  if (bytes > free)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{} sequences of {} positions need {} bytes of KV, {} are available",
                             largest(options.batches), positions, bytes, free)};
  return {};
}

}  // namespace

std::string SpeedTest::name() const {
  return fmt::format("{}{}{}{}", kind == Kind::Prompt ? "pp" : "tg", tokens,
                     batch > 1 ? fmt::format(" x{}", batch) : "",
                     depth > 0 ? fmt::format(" @ d{}", depth) : "");
}

double SpeedResult::median() const {
  const size_t half = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
}

Result<std::vector<SpeedResult>> measure_speed(const models::Model& model, const SpeedOptions& options,
                                               const std::optional<Limits>& limits,
                                               const std::function<void(const SpeedResult&)>& done) {
  if (Status status = check(model, options); !status) return status.error();
  std::vector<SpeedResult> results;
  for (int depth : options.depths) {
    const int sequences = options.answers.empty() ? 1 : std::max(1, largest(options.batches));
    const int positions = depth + std::max(largest(options.prompts), largest(options.answers));
    Result<std::unique_ptr<Track>> track = Track::make(model, options, sequences, positions);
    if (!track) return track.error();
    (*track)->fill(depth);
    for (const SpeedTest& test : tests_at(options, depth)) {
      SpeedResult result{test, {}, {}, {}};
      if (limits) result.floor = floor_of(model, options, test, *limits);
      warm_up(**track, test);
      for (int i = 0; i < options.repeat; ++i) {
        if (options.profiled != nullptr) options.profiled->clear();
        const Stopwatch watch(options.time);
        run_once(**track, test);
        result.seconds.push_back(watch.seconds());
      }
      if (options.profiled != nullptr) result.operations = options.profiled->costs();
      std::sort(result.seconds.begin(), result.seconds.end());
      done(result);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace sluice::lab
