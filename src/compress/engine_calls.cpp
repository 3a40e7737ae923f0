#include "compress/engine_calls.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "engine/event_queue.h"
#include "engine/text_stream.h"

namespace sluice::compress {

namespace {

// How soon a caller who gave up is heard.
constexpr std::chrono::milliseconds kPatience(20);
// Sequences that an engine is given at once: enough for its steps to be full, few enough for its queue.
constexpr size_t kMostSubmitted = 128;

// Events of several submissions, with their numbers.
class Mailbox {
 public:
  void push(size_t index, engine::Event event) {
    const std::lock_guard lock(mutex_);
    try {
      events_.emplace_back(index, std::move(event));
    } catch (const std::bad_alloc&) {
      lost_ = true;
    }
    arrived_.notify_one();
  }
  // Nothing where none came in time; an error where there was no memory for one.
  Result<std::optional<std::pair<size_t, engine::Event>>> pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kPatience, [&] { return lost_ || !events_.empty(); });
    if (lost_) return out_of_memory();
    std::optional<std::pair<size_t, engine::Event>> out;
    if (events_.empty()) return out;
    out = std::move(events_.front());
    events_.pop_front();
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::pair<size_t, engine::Event>> events_;
  bool lost_ = false;
};

engine::Submission submission_of(std::vector<Token> prompt, const Caller& caller) {
  engine::Submission submission;
  submission.request.client = caller.client;
  submission.request.weight = caller.weight;
  submission.request.priority = caller.priority;
  submission.request.prompt = std::move(prompt);
  // The prefixes of other requests are not mixed with these.
  submission.request.cache_salt = "compress\x1f" + caller.cache_salt;
  return submission;
}

// The submissions of one call; those that have not ended are cancelled with it.
class Batch {
 public:
  Batch(engine::Engine& engine, size_t count) : engine_(engine), ids_(count) {}
  ~Batch() {
    for (const std::optional<engine::RequestId>& id : ids_)
      if (id) engine_.cancel(*id);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Status submit(size_t index, engine::Submission submission) {
    submission.deliver = [box = box_, index](engine::Event event) { box->push(index, std::move(event)); };
    Result<engine::RequestId> id = engine_.submit(std::move(submission));
    if (!id) return id.error();
    ids_[index] = *id;
    return {};
  }
  // The next event of any of them.
  Result<std::pair<size_t, engine::Event>> next(const Caller& caller) {
    while (true) {
      auto event = box_->pop();
      if (!event) return event.error();
      if (*event) return finished(**std::move(event));
      if (caller.interrupt == nullptr) continue;
      if (Status status = caller.interrupt->check(); !status) return status.error();
    }
  }

 private:
  Result<std::pair<size_t, engine::Event>> finished(std::pair<size_t, engine::Event> event) {
    const auto* end = std::get_if<engine::Finished>(&event.second);
    if (end == nullptr) return event;
    ids_[event.first].reset();
    if (end->error) return *end->error;
    if (end->reason == engine::FinishReason::Stop || end->reason == engine::FinishReason::Length)
      return event;
    return Error{ErrorCode::Unavailable, "the compression of the prompt was cancelled"};
  }

  engine::Engine& engine_;
  std::shared_ptr<Mailbox> box_ = std::make_shared<Mailbox>();
  std::vector<std::optional<engine::RequestId>> ids_;
};

request::SamplingParams scoring_params(int from) {
  request::SamplingParams params;
  params.max_tokens = 1;
  params.prompt_logprobs = 0;
  params.prompt_logprobs_from = from;
  params.method = request::Sampling{.temperature = 0};
  params.speculate = request::Speculation::Off;
  return params;
}

}  // namespace

Result<std::vector<std::vector<float>>> score(const Model& model, std::vector<ScoredSequence> sequences,
                                              const Caller& caller) {
  std::vector<std::vector<float>> out(sequences.size());
  Batch batch(*model.engine, sequences.size());
  size_t submitted = 0, ended = 0;
  while (ended < sequences.size()) {
    for (; submitted < sequences.size() && submitted - ended < kMostSubmitted; ++submitted) {
      ScoredSequence& sequence = sequences[submitted];
      engine::Submission submission = submission_of(std::move(sequence.tokens), caller);
      submission.request.task = scoring_params(sequence.from);
      submission.request.positions.values = std::move(sequence.positions);
      if (Status status = batch.submit(submitted, std::move(submission)); !status) return status.error();
    }
    Result<std::pair<size_t, engine::Event>> event = batch.next(caller);
    if (!event) return event.error();
    if (const auto* delta = std::get_if<engine::Delta>(&event->second)) {
      for (const request::Sampled& token : delta->prompt_logprobs) out[event->first].push_back(token.logprob);
    }
    ended += std::holds_alternative<engine::Finished>(event->second);
  }
  return out;
}

Result<Written> write(const Model& model, Writing writing, const Caller& caller) {
  Result<engine::TextMaker> text = engine::make_text_maker(*model.tokenizer, {});
  if (!text) return text.error();
  engine::Submission submission = submission_of(std::move(writing.prompt), caller);
  request::SamplingParams params;
  params.max_tokens = writing.max_tokens;
  params.method = request::Sampling{.temperature = 0};
  if (writing.constraint) {
    if (model.grammars == nullptr)
      return Error{ErrorCode::Unsupported, "the model has no tokenizer for structured output"};
    Result<grammar::GrammarStore::Grammar> grammar = model.grammars->get(*writing.constraint);
    if (!grammar) return grammar.error();
    submission.kept = std::move(*grammar);
    params.constraint = std::move(writing.constraint);
  }
  submission.request.task = std::move(params);
  submission.request.positions.values = std::move(writing.positions);
  submission.text = text->make;
  submission.text_bytes = text->bytes;
  Batch batch(*model.engine, 1);
  if (Status status = batch.submit(0, std::move(submission)); !status) return status.error();
  Written written;
  while (true) {
    Result<std::pair<size_t, engine::Event>> event = batch.next(caller);
    if (!event) return event.error();
    if (const auto* delta = std::get_if<engine::Delta>(&event->second)) written.text += delta->text;
    if (const auto* end = std::get_if<engine::ChoiceEnd>(&event->second))
      written.ended = end->reason == engine::FinishReason::Stop;
    if (std::holds_alternative<engine::Finished>(event->second)) return written;
  }
}

Result<std::vector<float>> attend(const Model& model, std::vector<Token> prompt, int tokens,
                                  const Caller& caller) {
  engine::Submission submission = submission_of(std::move(prompt), caller);
  request::SamplingParams params;
  params.max_tokens = tokens;
  params.ignore_eos = true;
  params.prompt_attention = true;
  params.method = request::Sampling{.temperature = 0};
  params.speculate = request::Speculation::Off;
  submission.request.task = std::move(params);
  Batch batch(*model.engine, 1);
  if (Status status = batch.submit(0, std::move(submission)); !status) return status.error();
  std::vector<float> weights;
  while (true) {
    Result<std::pair<size_t, engine::Event>> event = batch.next(caller);
    if (!event) return event.error();
    if (auto* delta = std::get_if<engine::Delta>(&event->second); delta && !delta->prompt_attention.empty())
      weights = std::move(delta->prompt_attention);
    if (std::holds_alternative<engine::Finished>(event->second)) return weights;
  }
}

}  // namespace sluice::compress
