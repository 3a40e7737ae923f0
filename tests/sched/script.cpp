#include "tests/sched/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace sluice::sched::testing {
namespace {

std::string rest(std::istringstream& words) {
  std::string word, all;
  while (words >> word) all += (all.empty() ? "" : " ") + word;
  return all;
}

template <class T>
T read(std::istringstream& words) {
  T value{};
  EXPECT_TRUE(words >> value) << "a value is missing";
  return value;
}

void describe_moves(const request::Step& step, std::ostringstream& out) {
  int copies = 0, outs = 0, ins = 0;
  for (const request::BlockMove& move : step.moves) {
    ++(move.from.tier == move.to.tier ? copies : move.from.tier < move.to.tier ? outs : ins);
  }
  if (copies > 0) out << " copy " << copies;
  if (outs > 0) out << " out " << outs;
  if (ins > 0) out << " in " << ins;
}

}  // namespace

void Script::run(const std::string& path) {
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string verb;
    if (!(words >> verb)) continue;
    SCOPED_TRACE(path + ":" + std::to_string(number) + ": " + line);
    run_line(verb, words);
    if (kv_manager_) kv_manager_->check();
  }
}

void Script::run_line(const std::string& verb, std::istringstream& words) {
  if (set_number(verb, words) || set_choice(verb, words)) {
    EXPECT_FALSE(scheduler_) << "options stand before everything else";
    return;
  }
  build();
  if (verb == "add") {
    const request::Request& request = read_request(words);
    const Status status = scheduler_->admissible(request);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    if (status.ok()) scheduler_->add(request);
  } else if (verb == "refuse") {
    const Status status = scheduler_->admissible(read_request(words));
    const std::string expected = rest(words);
    EXPECT_FALSE(status.ok());
    const std::string message = status.ok() ? "" : status.error().message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  } else if (verb == "step") {
    read<std::string>(words);  // =>
    EXPECT_EQ(step(), rest(words));
  } else if (verb == "steps") {
    for (int count = read<int>(words); count > 0; --count) step();
  } else if (!run_event(verb, words)) {
    ADD_FAILURE() << "unknown word " << verb;
  }
}

bool Script::run_event(const std::string& verb, std::istringstream& words) {
  const auto id = [&] { return ids_.at(read<std::string>(words)); };
  if (verb == "cancel") {
    EXPECT_TRUE(scheduler_->cancel(id()));
  } else if (verb == "finish") {
    const request::RequestId request = id();
    bool ended = false;
    EXPECT_TRUE(scheduler_->finish(request, read<int>(words), &ended));
  } else if (verb == "fail") {
    failing_.insert(id());
  } else if (verb == "postpone") {
    postponing_.insert(id());
  } else if (verb == "lose") {
    losing_.insert(id());
  } else if (verb == "close") {
    scheduler_->set_closed(true);
  } else if (verb == "time") {
    now_ = TimePoint{} + std::chrono::duration_cast<Clock::duration>(Seconds(read<double>(words)));
  } else if (verb == "cost") {
    const double fixed = read<double>(words), per_token = read<double>(words);
    for (int i = 0; i < 1000; ++i)
      scheduler_->observe(i % 2 == 0 ? 10 : 1000, fixed + per_token * (i % 2 == 0 ? 10 : 1000));
  } else if (verb == "share") {
    EXPECT_EQ(share_.tokens, read<int>(words));
    EXPECT_NEAR(1e3 * share_.seconds, read<double>(words), 0.1);
  } else if (verb == "accept") {
    accept_ = read<int>(words);
  } else if (verb == "free" || verb == "free-states") {
    const int group = verb == "free" ? 0 : kv_manager_->groups() - 1;
    EXPECT_EQ(kv_manager_->capacity(group) - kv_manager_->usage(group).used, read<int>(words));
  } else {
    return false;
  }
  return true;
}

bool Script::set_number(const std::string& verb, std::istringstream& words) {
  std::vector<kv::KvGroup>& groups = kv_options_.groups;
  if (verb == "blocks") {
    groups.emplace_back().blocks[0] = read<int>(words);
    read<std::string>(words);  // x
    kv_options_.block_size = read<int>(words);
  } else if (verb == "window") {
    groups.emplace_back().window = read<int>(words);
    read<std::string>(words);  // blocks
    groups.back().blocks[0] = read<int>(words);
  } else if (verb == "states") {
    groups.push_back({.holds = kv::KvGroup::Holds::State, .blocks = {read<int>(words)}});
  } else if (verb == "drafts") {
    drafts_ = read<int>(words);
  } else if (verb == "host" || verb == "disk") {
    const int blocks = read<int>(words);
    for (kv::KvGroup& group : groups) group.blocks[verb == "host" ? 1 : 2] = blocks;
  } else if (verb == "budget") {
    options_.max_step_tokens = read<int>(words);
  } else if (verb == "stages") {
    options_.stages = read<int>(words);
  } else if (verb == "seqs") {
    options_.max_seqs = read<int>(words);
  } else if (verb == "wait") {
    options_.scheme.max_batch_wait = Seconds(read<double>(words));
  } else if (verb == "tbt") {
    const auto seconds = read<double>(words);
    options_.target_tbt = seconds > 0 ? TargetTbt(Seconds(seconds)) : TargetTbt(TbtAny{});
  } else if (verb == "even") {
    options_.even_step_tokens = read<int>(words);
  } else if (verb == "tbt-bursts") {
    options_.target_tbt = TbtOfBatch{read<double>(words)};
  } else if (verb == "tbt-batch") {
    const auto stretch = read<double>(words);
    options_.target_tbt = TbtOfBatch{stretch, read<int>(words), false};
  } else if (verb == "end") {
    options_.end_tokens.push_back(read<Token>(words));
  } else {
    return false;
  }
  return true;
}

bool Script::set_choice(const std::string& verb, std::istringstream& words) {
  const auto is = [&](const char* value) { return read<std::string>(words) == value; };
  if (verb == "scheme") {
    options_.scheme = scheme_named(read<std::string>(words))->scheme;
  } else if (verb == "layout") {
    options_.layout = is("padded") ? Layout::Padded : Layout::Packed;
  } else if (verb == "prefill") {
    options_.prefill = is("separate") ? Prefill::Separate : Prefill::Mixed;
  } else if (verb == "kv") {
    options_.kv_policy = is("preallocate") ? KvPolicy::Preallocate : KvPolicy::OnDemand;
  } else if (verb == "preempt") {
    options_.preemption = is("swap") ? Preemption::Swap : Preemption::Recompute;
  } else if (verb == "prefix") {
    kv_options_.prefix_cache = is("on");
  } else if (verb == "towers") {
    options_.parts_towers = is("parts");
  } else if (verb == "kv-cache") {
    options_.kv_cache = is("on");
  } else if (verb == "rope") {
    const bool kept = is("kept");
    options_.rope = {.outgrown = kept ? RopeSets::Outgrown::Kept : RopeSets::Outgrown::Recomputed,
                     .limit = read<int>(words),
                     .count = kept ? read<int>(words) : 2};
  } else {
    return false;
  }
  return true;
}

void Script::build() {
  if (scheduler_) return;
  kv_manager_ = std::make_unique<kv::KvManager>(kv_options_);
  scheduler_ = std::make_unique<Scheduler>(options_, *kv_manager_);
}

bool Script::read_request_option(const std::string& word, std::istringstream& words,
                                 request::Request& request, Named& named) {
  if (word == "max") {
    request.sampling().max_tokens = read<int>(words);
  } else if (word == "client") {
    request.client = read<std::string>(words);
  } else if (word == "priority") {
    request.priority = read<int>(words);
  } else if (word == "span") {
    const int begin = read<int>(words), end = read<int>(words);
    request.spans.push_back({.begin = begin, .end = end, .content = {}, .bidirectional = true});
  } else if (word == "picture") {
    const int begin = read<int>(words), end = read<int>(words);
    request.spans.push_back({.begin = begin, .end = end, .content = {}, .bidirectional = false});
  } else if (word == "salt") {
    request.cache_salt = read<std::string>(words);
  } else if (word == "n") {
    request.sampling().n = read<int>(words);
  } else if (word == "stops") {
    named.stops = read<int>(words);
  } else if (word == "logs") {
    request.sampling().prompt_logprobs = 0;
  } else if (word == "beam") {
    request.sampling().method = request::BeamSearch{.width = read<int>(words)};
  } else if (word == "shares") {
    const std::vector<Token>& other = requests_.at(ids_.at(read<std::string>(words))).request->prompt;
    request.prompt.assign(other.begin(), other.begin() + read<int>(words));
  } else {
    return false;
  }
  return true;
}

const request::Request& Script::read_request(std::istringstream& words) {
  Named named{.name = read<std::string>(words)};
  request::Request request;
  request.id = request::RequestId{requests_.size() + 1};
  request.arrival = now_;
  size_t size = 0;
  std::string word;
  while (words >> word && word != "=>") {
    if (word == "prompt") {
      size = read<size_t>(words);
    } else {
      EXPECT_TRUE(read_request_option(word, words, request, named)) << "unknown option " << word;
    }
  }
  while (request.prompt.size() < size) request.prompt.push_back(next_token_++);
  ids_[named.name] = request.id;
  named.request = std::make_shared<const request::Request>(std::move(request));
  return *(requests_[named.request->id] = named).request;
}

std::string Script::label(SeqId seq) const {
  const auto& [id, lane] = seqs_.at(seq);
  return requests_.at(id).name + (lane == 0 ? "" : "." + std::to_string(lane));
}

std::string Script::step() {
  const request::Step& step = in_flight_.emplace_back(scheduler_->plan(now_));
  share_ = step.pictures;
  for (const request::Admission& admission : step.admit) {
    seqs_[admission.seq] = {admission.request->id, 0};
    requests_.at(admission.request->id).group = admission.seq;
  }
  for (const request::Fork& fork : step.forks) seqs_[fork.child] = {seqs_.at(fork.parent).first, fork.choice};
  for (const request::Lanes& lanes : step.lanes) {
    const request::RequestId id = seqs_.at(lanes.group).first;
    for (size_t i = 0; i < lanes.lanes.size(); ++i) seqs_[lanes.lanes[i]] = {id, static_cast<int>(i)};
  }
  std::ostringstream out;
  for (const request::Work& work : step.work) {
    out << " " << label(work.seq) << "[" << work.begin << "," << work.known_end() << ")";
    if (!work.drafts.empty()) out << "+" << work.drafts.size();
    if (options_.rope.count > 1) out << "@" << options_.rope.of(std::max(work.rope_length, work.end));
    if (work.sample_from < work.end) out << "*";
  }
  for (const request::RequestId id : step.preempted) out << " preempt " << requests_.at(id).name;
  if (step.padding) out << " pad " << step.padding->rows << "x" << step.padding->width;
  describe_moves(step, out);
  const bool held = scheduler_->holding();
  if (static_cast<int>(in_flight_.size()) == options_.stages) {
    const request::Step& oldest = in_flight_.front();
    for (const Progress& progress : scheduler_->commit(oldest, invent(oldest))) {
      if (progress.ended)
        out << (progress.error ? " error " : " end ") << requests_.at(progress.request).name;
    }
    in_flight_.pop_front();
  }
  if (held && !scheduler_->holding()) out << " deliver";
  const std::string text = out.str();
  return text.empty() ? text : text.substr(1);
}

std::vector<request::Outcome> Script::invent(const request::Step& step) {
  std::vector<request::Outcome> outcomes;
  std::set<request::RequestId> moved;
  for (const request::Work& work : step.work) {
    const request::RequestId id = seqs_.at(work.seq).first;
    Named& named = requests_.at(id);
    const bool search = request::is_search(*named.request);
    const SeqId seq = search ? named.group : work.seq;
    const bool prompt = work.end < static_cast<int>(named.request->prompt.size());
    if (losing_.erase(id) > 0) {
      outcomes.push_back({seq, request::KvLost{}, {}});
    } else if (postponing_.erase(id) > 0) {
      outcomes.push_back({seq, request::Postponed{}, {}});
    } else if (prompt || work.sample_from == work.end) {
      continue;
    } else if (failing_.erase(id) > 0) {
      outcomes.push_back({seq, Error{ErrorCode::Internal, "not finite"}, {}});
    } else if (search) {
      if (!moved.insert(id).second) continue;
      outcomes.push_back({seq, invent_move(named), {}});
      ++named.sampled;
    } else {
      const bool stop = ++named.sampled == named.stops;
      const Token token = stop ? options_.end_tokens.at(0) : -1;
      const int right = std::min(accept_, static_cast<int>(work.drafts.size()));
      outcomes.push_back({seq,
                          request::Tokens{.tokens = std::vector<request::Sampled>(
                                              static_cast<size_t>(1 + right), {token, 0, {}}),
                                          .verified = {.accepted = right},
                                          .drafts = std::vector<Token>(static_cast<size_t>(drafts_))},
                          {}});
    }
  }
  return outcomes;
}

// Every lane goes on but the last, which is replaced by a fork of the first; over after max_tokens moves.
request::SearchMove Script::invent_move(const Named& named) {
  request::SearchMove move;
  if (named.sampled == named.request->sampling().max_tokens) return move;
  const int width = request::sequence_count(named.request->sampling());
  for (int i = 0; i < width; ++i) {
    const bool fork = named.sampled == 0 || i == width - 1;
    move.moves.push_back({fork ? 0 : i, -2 - i});
  }
  return move;
}

}  // namespace sluice::sched::testing
