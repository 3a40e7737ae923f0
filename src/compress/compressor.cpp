#include "compress/compressor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/clock.h"
#include "compress/information.h"
#include "compress/prefill.h"
#include "compress/rewriting.h"

namespace sluice::compress {

namespace {

// Sentences are chosen for this much of the budget; what is over it, words give back.
constexpr double kSentenceShare = 1.12;

constexpr int kMarginShare = 2;  // tokens that are scored for one that goes

class Running {
 public:
  explicit Running(std::atomic<int>& count) : count_(count), number_(++count_) {}
  ~Running() { --count_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  int number() const { return number_; }

 private:
  std::atomic<int>& count_;
  const int number_;
};

class KeyMaker {
 public:
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    hash_.update(std::as_bytes(std::span(text)));
  }
  void add(int64_t number) { hash_.update(std::as_bytes(std::span(&number, 1))); }
  void add(const ByteRange& range) {
    add(static_cast<int64_t>(range.begin));
    add(static_cast<int64_t>(range.end));
  }
  Sha256Digest finish() { return hash_.finish(); }

 private:
  Sha256 hash_;
};

// Of everything that a result depends on.
Sha256Digest key_of(const Task& task, const Text& text, int budget) {
  KeyMaker key;
  key.add(task.caller.cache_salt);
  key.add(static_cast<int64_t>(task.options.mode));
  key.add(task.options.schema);
  key.add(task.options.question);
  key.add(int64_t{budget});
  key.add(text.text);
  key.add(text.question);
  for (const ByteRange& range : text.marked) key.add(range);
  return key.finish();
}

Sha256Digest key_of(const Task& task, std::span<const Token> prompt, const TextTokens& parts, int budget) {
  KeyMaker key;
  key.add(task.caller.cache_salt);
  key.add(static_cast<int64_t>(task.options.mode));
  key.add(int64_t{budget});
  for (size_t i = 0; i < prompt.size(); ++i) key.add(int64_t{prompt[i]} * 2 + (parts.fixed[i] ? 1 : 0));
  return key.finish();
}

// Indices as the bytes that the cache keeps.
std::string bytes_of(const std::vector<int32_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int32_t)};
}
std::vector<int32_t> numbers_of(const std::string& bytes) {
  std::vector<int32_t> out(bytes.size() / sizeof(int32_t));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(int32_t));
  return out;
}

Error too_many_tokens(int64_t tokens, int limit) {
  return {ErrorCode::LimitExceeded,
          fmt::format("{} tokens are to be compressed; the limit is {}", tokens, limit)};
}

Result<int> count_tokens(const Model& model, std::string_view text, Interrupt* interrupt) {
  Result<std::vector<Token>> tokens = model.tokenizer->encode(text, {.interrupt = interrupt});
  if (!tokens) return tokens.error();
  return static_cast<int>(tokens->size());
}

// Sentences without a question: by what their words say on average.
Result<std::vector<double>> sentence_information(const Model& model, const MeasuredText& text,
                                                 const Caller& caller) {
  Result<std::vector<double>> words =
      word_information(model, text, Kept(text.units.words.size(), true), caller);
  if (!words) return words.error();
  std::vector<double> out;
  for (const Sentence& sentence : text.units.sentences) {
    double sum = 0;
    for (size_t i = sentence.first; i < sentence.end; ++i) sum += (*words)[i];
    out.push_back(sum / static_cast<double>(sentence.end - sentence.first));
  }
  return out;
}

BudgetRule budget_rule(const Options& options) {
  return {.ratio = options.ratio.value_or(Options::kRatio),
          .max_tokens = options.max_tokens.value_or(-1),
          .min_keep = options.min_keep};
}

Error too_many_at_once(const CompressorLimits& limits) {
  return {ErrorCode::Unavailable,
          fmt::format("{} prompts are being compressed, which is the limit", limits.at_once)};
}

Result<std::string> select_tokens(const Model& target, const Model& scorer, const Task& task,
                                  const Text& text, int budget) {
  Result<MeasuredText> measured = measure(*target.tokenizer, text, task.caller.interrupt);
  if (!measured) return measured.error();
  Result<std::vector<double>> scores =
      task.options.question.empty() ? sentence_information(scorer, *measured, task.caller)
                                    : question_scores(scorer, *measured, task.options.question, task.caller);
  if (!scores) return scores.error();
  Kept kept = choose_sentences(*measured, *scores, static_cast<int>(kSentenceShare * budget));
  const int over = kept_tokens(*measured, kept) - budget;
  if (over <= 0) return join_kept(*measured, kept);
  // The sentences that were taken last give words back: to score those of all would cost half as much as the sentences did.
  const Kept margin = lowest_sentences(*measured, *scores, kept, kMarginShare * over);
  Result<std::vector<double>> information = word_information(scorer, *measured, margin, task.caller);
  if (!information) return information.error();
  for (size_t i = 0; i < margin.size(); ++i)
    if (!margin[i]) (*information)[i] = std::numeric_limits<double>::infinity();
  // Tokens across words that are no longer neighbours differ: what the text really has decides.
  std::string joined;
  for (int attempt = 0, allowed = budget; attempt < 4; ++attempt) {
    drop_words(*measured, *information, allowed, kept);
    joined = join_kept(*measured, kept);
    Result<int> count = count_tokens(target, joined, task.caller.interrupt);
    if (!count) return count.error();
    if (*count <= budget) break;
    allowed -= *count - budget;
  }
  return joined;
}

}  // namespace

std::string_view name(Mode mode) {
  for (const ModeName& row : kModes)
    if (row.mode == mode) return row.name;
  return "";
}

bool ResultCache::find(const Sha256Digest& key, std::string& out) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  used_.splice(used_.begin(), used_, found->second);
  out = found->second->second;
  return true;
}

void ResultCache::put(const Sha256Digest& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  used_.emplace_front(key, text);
  if (bytes_of(used_.front()) > limit_) {
    used_.pop_front();
    return;
  }
  by_key_[key] = used_.begin();
  bytes_ += bytes_of(used_.front());
  while (bytes_ > limit_) {
    bytes_ -= bytes_of(used_.back());
    by_key_.erase(used_.back().first);
    used_.pop_back();
  }
}

size_t ResultCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

ModelCompressor::ModelCompressor(Model target, Model scorer, CompressorLimits limits)
    : target_(target), scorer_(scorer), limits_(limits), cache_(limits.cache_bytes) {}

Result<Compressed> ModelCompressor::compress(const Task& task) {
  const Running running(running_);
  if (running.number() > limits_.at_once) return too_many_at_once(limits_);
  return compress_texts(task);
}

Result<KeptTokens> PromptCompressor::keep_tokens(const Task&, std::span<const Token>) {
  return Error{ErrorCode::Unsupported, "mode \"prefill\" is not offered here"};
}

Result<KeptTokens> ModelCompressor::keep_tokens(const Task& task, std::span<const Token> prompt) {
  const Running running(running_);
  if (running.number() > limits_.at_once) return too_many_at_once(limits_);
  if (!target_.takes_positions)
    return Error{
        ErrorCode::Unsupported,
        "mode \"prefill\" keeps tokens at their positions, which only models whose layers all attend to "
        "the whole prompt with rotary positions can read"};
  if (scorer_.tokenizer != target_.tokenizer)
    if (Status same = check_same_vocabulary(*scorer_.tokenizer, *target_.tokenizer); !same)
      return same.error();
  return choose_tokens(task, prompt);
}

Result<KeptTokens> ModelCompressor::choose_tokens(const Task& task, std::span<const Token> prompt) {
  const TimePoint start = Clock::now();
  const TextTokens parts = find_texts(*target_.tokenizer, prompt, task.texts);
  const auto size = static_cast<int>(std::count(parts.in_text.begin(), parts.in_text.end(), true));
  if (size > limits_.text_tokens) return too_many_tokens(size, limits_.text_tokens);
  const int budget = plan_budgets(std::span(&size, 1), budget_rule(task.options)).front();
  KeptTokens out{.original_tokens = size, .cached = true};
  out.kept.resize(prompt.size());
  std::iota(out.kept.begin(), out.kept.end(), 0);
  if (budget < size) {
    const Sha256Digest key = key_of(task, prompt, parts, budget);
    std::string bytes;
    out.cached = cache_.find(key, bytes);
    if (!out.cached) {
      Result<std::vector<float>> weights = look_ahead(scorer_, prompt, task.caller);
      if (!weights) return weights.error();
      bytes = bytes_of(choose_chunks(parts, *weights, budget));
      cache_.put(key, bytes);
    }
    out.kept = numbers_of(bytes);
  }
  for (const int32_t index : out.kept) out.kept_tokens += parts.in_text[static_cast<size_t>(index)] ? 1 : 0;
  out.text = shown_text(*target_.tokenizer, prompt, parts, out.kept);
  out.seconds = seconds_since(start);
  return out;
}

Result<Compressed> ModelCompressor::compress_texts(const Task& task) {
  const TimePoint start = Clock::now();
  std::vector<int> sizes;
  for (const Text& text : task.texts) {
    Result<int> count = count_tokens(target_, text.text, task.caller.interrupt);
    if (!count) return count.error();
    sizes.push_back(*count);
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (total > limits_.text_tokens) return too_many_tokens(total, limits_.text_tokens);
  const std::vector<int> budgets = plan_budgets(sizes, budget_rule(task.options));
  Compressed out{.original_tokens = static_cast<int>(total), .cached = true};
  for (size_t i = 0; i < task.texts.size(); ++i) {
    std::string text(task.texts[i].text);
    if (budgets[i] < sizes[i]) {
      const Sha256Digest key = key_of(task, task.texts[i], budgets[i]);
      if (!cache_.find(key, text)) {
        Result<std::string> made = shorten(task, task.texts[i], budgets[i]);
        if (!made) return made.error();
        text = std::move(*made);
        cache_.put(key, text);
        out.cached = false;
      }
    }
    Result<int> count = count_tokens(target_, text, task.caller.interrupt);
    if (!count) return count.error();
    out.kept_tokens += *count;
    out.texts.push_back(std::move(text));
  }
  out.seconds = seconds_since(start);
  return out;
}

Result<std::string> ModelCompressor::shorten(const Task& task, const Text& text, int budget) {
  switch (task.options.mode) {
    case Mode::Tokens:
      return select_tokens(target_, scorer_, task, text, budget);
    case Mode::Prefill:
      return Error{ErrorCode::Internal, "mode \"prefill\" makes no text"};
    case Mode::Summary:
      return summarize(target_, task, text, budget);
    case Mode::Extract:
      return extract(target_, task, text, budget);
  }
  return Error{ErrorCode::Internal, "no such mode of compression"};
}

}  // namespace sluice::compress
