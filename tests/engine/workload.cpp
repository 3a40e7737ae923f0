#include "tests/engine/workload.h"

#include <algorithm>

#include "request/step_codec.h"

namespace sluice::sim {
namespace {

constexpr int kMaxSteps = 100'000;
constexpr auto kStepTime = std::chrono::milliseconds(1);

// Text that meets a stop string where a certain token comes.
class StopsAt : public engine::TextStream {
 public:
  explicit StopsAt(Token stop) : stop_(stop) {}
  Result<Piece> push(std::span<const Token> tokens) override {
    return Piece{
        .text = {}, .stopped = std::find(tokens.begin(), tokens.end(), stop_) != tokens.end(), .stop = "!"};
  }
  Result<std::string> finish() override { return std::string(); }

 private:
  Token stop_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const World& s) {
  return out << "World{.seed = " << s.seed << "u, .scheme = " << s.scheme << ", .padded = " << s.padded
             << ", .separate = " << s.separate << ", .preallocate = " << s.preallocate
             << ", .swap = " << s.swap << ", .prefix_cache = " << s.prefix_cache
             << ", .kv_cache = " << s.kv_cache << ", .windowed = " << s.windowed << ", .faults = " << s.faults
             << ", .searches = " << s.searches << ", .depth = " << s.depth
             << ", .block_size = " << s.block_size << ", .blocks = " << s.blocks
             << ", .host_blocks = " << s.host_blocks << ", .disk_blocks = " << s.disk_blocks
             << ", .max_seqs = " << s.max_seqs << ", .budget = " << s.budget << ", .requests = " << s.requests
             << ", .rope_sets = " << s.rope_sets << ", .rope_limit = " << s.rope_limit
             << ", .rope_kept = " << s.rope_kept << ", .drafts = " << s.drafts
             << ", .state_slots = " << s.state_slots << "}";
}

engine::EngineOptions Simulation::options_for(const World& world) {
  engine::EngineOptions options;
  sched::SchedulerOptions& scheduler = options.scheduler;
  scheduler.scheme = sched::kSchemes[world.scheme].scheme;
  scheduler.layout = world.padded ? sched::Layout::Padded : sched::Layout::Packed;
  scheduler.prefill = world.separate ? sched::Prefill::Separate : sched::Prefill::Mixed;
  scheduler.kv_policy = world.preallocate ? sched::KvPolicy::Preallocate : sched::KvPolicy::OnDemand;
  scheduler.preemption = world.swap ? sched::Preemption::Swap : sched::Preemption::Recompute;
  scheduler.max_seqs = world.max_seqs;
  scheduler.max_step_tokens = std::max(world.budget, world.padded ? world.max_seqs : 1);
  scheduler.kv_cache = world.kv_cache;
  scheduler.rope = {
      .outgrown = world.rope_kept ? sched::RopeSets::Outgrown::Kept : sched::RopeSets::Outgrown::Recomputed,
      .limit = world.rope_limit,
      .count = world.rope_kept ? world.rope_sets : std::min(world.rope_sets, 2)};
  scheduler.end_tokens = {kEnd};
  options.kv_manager.block_size = world.block_size;
  options.kv_manager.prefix_cache = world.prefix_cache;
  options.kv_manager.checkpoint_interval = 12;
  options.kv_manager.message_ends = {kEnd, 3};
  options.kv_manager.groups.push_back(
      {.window = 0, .blocks = {world.blocks, world.host_blocks, world.disk_blocks}});
  if (world.windowed) {
    options.kv_manager.groups.push_back(
        {.window = 6, .blocks = {world.blocks, world.host_blocks, world.disk_blocks}});
  }
  if (world.state_slots > 0) {
    options.kv_manager.groups.push_back(
        {.holds = kv::KvGroup::Holds::State,
         .blocks = {world.state_slots, world.host_blocks, world.disk_blocks}});
  }
  options.vocab = kVocab;
  return options;
}

Simulation::Simulation(const World& world) : world_(world), random_(world.seed) {
  const engine::EngineOptions options = options_for(world);
  executor_ = std::make_unique<CheckedExecutor>(world_, options.kv_manager);
  executor_->drafts = world_.drafts;
  engine_ = std::make_unique<engine::Engine>(options, *executor_, [this] { return now_; });
  plan_workload();
  if (world_.faults) add_faults();
}

void Simulation::CheckedExecutor::submit(const Step& step) {
  const sched::SchedulerOptions limits = options_for(world_).scheduler;
  if (step.computed_tokens() > limits.max_step_tokens) broken_limit = "a step is over the token budget";
  if (static_cast<int>(step.work.size()) > limits.max_seqs) broken_limit = "a step has too many sequences";
  if (step.padding.has_value() != (world_.padded && !step.work.empty())) broken_limit = "padding is wrong";
  if (step.padding && step.padding->rows < static_cast<int>(step.work.size())) broken_limit = "too few rows";
  // What runs is what another rank would be sent.
  const std::vector<std::byte> bytes = request::serialize(step);
  const Result<Step> received = request::parse_step(bytes);
  if (!received) broken_limit = received.error().message;
  if (received && request::serialize(*received) != bytes) broken_limit = "a step changes on its way";
  FakeExecutor::submit(received ? *received : step);
}

Request Simulation::random_request() {
  Request request;
  const std::vector<Token>& stem = stems_[static_cast<size_t>(pick(static_cast<int>(stems_.size())))];
  request.prompt.assign(stem.begin(), stem.begin() + pick(static_cast<int>(stem.size())));
  for (int tail = 1 + pick(12); tail > 0; --tail) request.prompt.push_back(1 + pick(kVocab - 1));
  if (pick(3) == 0) add_input(request);
  request.client = std::string(1, static_cast<char>('a' + pick(3)));
  request.priority = pick(8) == 0;
  if (pick(6) == 0) request.cache_salt = "secret";
  if (pick(6) == 0) {
    request.task = request::Pooling{pick(2) == 0 ? request::Pooling::Of::Mean : request::Pooling::Of::Last};
    return request;
  }
  request.sampling().max_tokens = 1 + pick(14);
  request.sampling().ignore_eos = pick(4) == 0;
  if (pick(8) == 0) request.sampling().prompt_logprobs = 0;
  if (pick(4) == 0) request.sampling().n = 1 + pick(3);
  if (pick(6) == 0) request.sampling().method = request::Sampling{.typical_p = 0.5};  // the host samples
  if (world_.searches && pick(3) == 0) {
    request.sampling().n = 1;
    if (pick(3) == 0) {
      request.sampling().method = request::ContrastiveSearch{.top_k = 2};
    } else {
      request.sampling().method = request::BeamSearch{.width = 2 + pick(2)};
      request.sampling().n = 2;
    }
  }
  return request;
}

// Embeddings of a few pictures, in the place of tokens that other prompts have as well.
void Simulation::add_input(Request& request) {
  const int size = static_cast<int>(request.prompt.size());
  for (int begin = pick(4); begin + 1 < size; begin += 1 + pick(9)) {
    request::EmbeddingSpan span{.begin = begin, .end = std::min(begin + 1 + pick(6), size - 1)};
    span.content[0] = static_cast<uint8_t>(pick(3));
    span.bidirectional = pick(2) == 0;
    begin = span.end;
    request.spans.push_back(span);
  }
  if (pick(3) > 0) return;
  request.positions.sections = 3;
  for (int i = 0; i < 3 * size; ++i) request.positions.values.push_back(i % size / (1 + i / size));
}

void Simulation::plan_workload() {
  for (int i = 0; i < 3; ++i) {
    std::vector<Token>& stem = stems_.emplace_back();
    for (int size = 8 + pick(24); size > 0; --size) stem.push_back(1 + pick(kVocab - 1));
  }
  int at = 0;
  for (int i = 0; i < world_.requests; ++i) {
    auto sent = std::make_unique<Sent>();
    sent->request = random_request();
    if (pick(2) == 0) at += pick(12);  // bursts and pauses
    sent->at = at;
    if (pick(8) == 0) sent->cancel_at = at + pick(30);
    const bool draws = sent->request.pooling() == nullptr && !request::is_search(sent->request);
    if (draws && pick(4) == 0) sent->stop_at = pick(kVocab);
    if (pick(12) == 0) sent->time_limit = Seconds(0.001 * pick(40));
    sent_.push_back(std::move(sent));
  }
}

void Simulation::add_faults() {
  executor_->faults.request_fails = [this](SeqId) { return pick(60) == 0; };
  executor_->faults.read_back_fails = [this] { return pick(20) == 0; };
  executor_->faults.step_fails = [this] { return pick(150) == 0; };
}

void Simulation::submit(Sent& sent) {
  engine::Submission submission;
  submission.request = sent.request;
  submission.time_limit = sent.time_limit;
  if (sent.stop_at) {
    submission.text = [stop = *sent.stop_at](int) { return std::make_unique<StopsAt>(stop); };
  }
  submission.deliver = [this, &sent](engine::Event event) { take(sent, std::move(event)); };
  const Result<RequestId> id = engine_->submit(std::move(submission));
  sent.refused = !id.ok();
  if (id.ok()) sent.id = *id;
}

void Simulation::take(Sent& sent, engine::Event event) {
  sent.after_end |= sent.finished > 0;
  if (const auto* delta = std::get_if<engine::Delta>(&event)) {
    for (const request::Sampled& sampled : delta->tokens) sent.tokens[delta->choice].push_back(sampled.token);
    for (const request::Sampled& sampled : delta->prompt_logprobs) sent.logged.push_back(sampled.token);
  }
  if (const auto* vector = std::get_if<engine::Embedding>(&event)) sent.vectors.push_back(vector->values);
  if (const auto* last = std::get_if<engine::Finished>(&event)) {
    ++sent.finished;
    sent.last = *last;
  }
}

// One turn of the world; false when all has been sent and nothing is left to do.
bool Simulation::step(int number) {
  bool more = false;
  for (const std::unique_ptr<Sent>& sent : sent_) {
    if (sent->at == number) submit(*sent);
    if (sent->cancel_at == number && !sent->refused) engine_->cancel(sent->id);
    more |= sent->at > number || sent->cancel_at > number;
  }
  if (!more) engine_->close();
  engine_->trace(cursor_);  // somebody watches all the time
  engine_->snapshot();
  const bool worked = engine_->step();
  now_ += kStepTime;
  return more || worked || engine_->health().busy;
}

std::string Simulation::check_step() const {
  engine_->kv_manager().check();
  if (!executor_->complaint().empty()) return executor_->complaint();
  if (!executor_->broken_limit.empty()) return executor_->broken_limit;
  std::string complaint;
  engine_->scheduler().for_each(0, [&](const sched::RequestView& view) {
    if (view.preemptions > 3) complaint = "a request was preempted more than three times";
  });
  return complaint;
}

std::string Simulation::check_answer(const Sent& sent) const {
  const std::string who = "request " + std::to_string(sent.id.value) + ": ";
  if (sent.refused) return sent.finished == 0 ? "" : who + "refused, but has events";
  if (sent.finished != 1) return who + std::to_string(sent.finished) + " last events";
  if (sent.after_end) return who + "events after the last one";
  const bool complete =
      sent.last.reason == request::FinishReason::Stop || sent.last.reason == request::FinishReason::Length;
  const char* wrong =
      sent.request.pooling() != nullptr ? check_vector(sent, complete) : check_tokens(sent, complete);
  if (wrong != nullptr) return who + wrong;
  const bool excused = world_.faults || sent.cancel_at >= 0 || sent.time_limit;
  return complete || excused ? "" : who + "ended for no reason";
}

const char* Simulation::check_vector(const Sent& sent, bool complete) {
  if (!sent.tokens.empty()) return "tokens beside a vector";
  if (sent.vectors.size() != (complete ? 1u : 0u)) return "not one vector";
  return complete && sent.vectors[0] != expected_vector(sent.request) ? "a wrong vector" : nullptr;
}

const char* Simulation::check_tokens(const Sent& sent, bool complete) {
  std::vector<std::vector<Token>> expected = expected_tokens(sent.request);
  for (std::vector<Token>& tokens : expected) {
    const auto stop = sent.stop_at ? std::find(tokens.begin(), tokens.end(), *sent.stop_at) : tokens.end();
    if (stop != tokens.end()) tokens.erase(stop + 1, tokens.end());
  }
  const auto choices = static_cast<size_t>(sent.request.sampling().n);
  if (complete && sent.tokens.size() != choices) return "not all choices came";
  for (const auto& [choice, tokens] : sent.tokens) {
    const std::vector<Token>& right = expected[static_cast<size_t>(choice)];
    const bool prefix =
        tokens.size() <= right.size() && std::equal(tokens.begin(), tokens.end(), right.begin());
    if (!prefix || (complete && tokens.size() != right.size())) return "wrong tokens";
  }
  const bool logs = sent.request.sampling().prompt_logprobs && request::sampling_of(sent.request.sampling());
  const std::vector<Token>& prompt = sent.request.prompt;
  if (!complete || !logs) return nullptr;
  return std::equal(prompt.begin() + 1, prompt.end(), sent.logged.begin(), sent.logged.end())
             ? nullptr
             : "not every token of the prompt logged once";
}

std::string Simulation::check_end() const {
  for (const std::unique_ptr<Sent>& sent : sent_) {
    if (std::string complaint = check_answer(*sent); !complaint.empty()) return complaint;
  }
  const KvManager& kv_manager = engine_->kv_manager();
  if (kv_manager.sequences() != 0) return "the kv_manager still has sequences";
  for (int group = 0; group < kv_manager.groups(); ++group) {
    const kv::GroupUsage usage = kv_manager.usage(group);
    if (usage.used + usage.promised + usage.host_used + usage.disk_used != 0) return "blocks leaked";
  }
  return executor_->sequences() == 0 ? "" : "the executor still has sequences";
}

std::string Simulation::run() {
  for (int number = 0; number < kMaxSteps; ++number) {
    const bool more = step(number);
    if (std::string complaint = check_step(); !complaint.empty()) return complaint;
    if (more) continue;
    engine_->step();  // what ended last is retired
    return check_end();
  }
  return "it never ends";
}

}  // namespace sluice::sim
