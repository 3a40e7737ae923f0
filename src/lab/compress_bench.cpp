#include "lab/compress_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "base/clock.h"
#include "compress/engine_calls.h"
#include "compress/information.h"
#include "compress/selection.h"

namespace sluice::lab {

namespace {

struct WayName {
  ShorterBy way;
  std::string_view name;
};
constexpr std::array<WayName, 7> kWays{{{ShorterBy::Nothing, "full"},
                                        {ShorterBy::Tokens, "tokens"},
                                        {ShorterBy::Prefill, "prefill"},
                                        {ShorterBy::Summary, "summary"},
                                        {ShorterBy::Extract, "extract"},
                                        {ShorterBy::Truncation, "truncation"},
                                        {ShorterBy::Random, "random"}}};

std::optional<compress::Mode> mode_of(ShorterBy way) {
  switch (way) {
    case ShorterBy::Tokens:
      return compress::Mode::Tokens;
    case ShorterBy::Prefill:
      return compress::Mode::Prefill;
    case ShorterBy::Summary:
      return compress::Mode::Summary;
    case ShorterBy::Extract:
      return compress::Mode::Extract;
    default:
      return std::nullopt;
  }
}

struct TokenPrompt {
  std::vector<Token> tokens;
  std::vector<int32_t> positions;  // empty: their indices
};

// One text made shorter, and the prompt that it makes with its question.
struct Shorter {
  std::string text;
  double seconds = 0, cached_seconds = 0;
  int kept_tokens = 0;
  TokenPrompt prompt;
};

class BenchRun {
 public:
  explicit BenchRun(const CompressBench& bench) : bench_(bench) {}

  // The answers of the full prompts, which the others are held to.
  Status prepare(CompressPoint& point) {
    for (const CompressCase& one : bench_.cases) {
      Result<TokenPrompt> prompt = encode(one.text + one.question);
      if (!prompt) return prompt.error();
      Result<Answered> full = answer(*prompt);
      if (!full) return full.error();
      point.ttft_s += full->ttft_s;
      note_answer(one, full->text, point);
      Result<double> likelihood = likelihood_of(*prompt, full->text, full->caller);
      if (!likelihood) return likelihood.error();
      answers_.push_back(full->text);
      likelihoods_.push_back(*likelihood);
    }
    point.marked = static_cast<double>(bench_.cases.size());
    divide(point);
    point.cached_ttft_s = point.ttft_s;
    return {};
  }

  Status run(CompressPoint& point) {
    point.kept = point.marked = 0;
    for (size_t i = 0; i < bench_.cases.size(); ++i) {
      const CompressCase& one = bench_.cases[i];
      Result<Shorter> shorter = shorten(one, point);
      if (!shorter) return shorter.error();
      Result<Answered> given = answer(shorter->prompt);
      if (!given) return given.error();
      Result<double> likelihood = likelihood_of(shorter->prompt, answers_[i], given->caller);
      if (!likelihood) return likelihood.error();
      Result<int> before = count(one.text);
      if (!before) return before.error();
      point.kept += double(shorter->kept_tokens) / std::max(1, *before);
      point.compress_s += shorter->seconds;
      point.ttft_s += shorter->seconds + given->ttft_s;
      point.cached_ttft_s += shorter->cached_seconds + given->ttft_s;
      point.loss += likelihoods_[i] - *likelihood;
      point.marked += shorter->text.find(one.marked) != std::string::npos;
      const bool right = note_answer(one, given->text, point);
      point.outcomes.push_back({one.name, *before, shorter->kept_tokens, likelihoods_[i] - *likelihood, right,
                                std::move(shorter->text), std::move(given->text)});
    }
    point.kept /= static_cast<double>(bench_.cases.size());
    divide(point);
    return {};
  }

 private:
  struct Answered {
    std::string text;
    double ttft_s = 0;
    compress::Caller caller;  // what follows with it finds the prompt in the prefix cache
  };

  void divide(CompressPoint& point) const {
    for (double* sum : {&point.compress_s, &point.ttft_s, &point.cached_ttft_s, &point.loss, &point.marked})
      *sum /= static_cast<double>(bench_.cases.size());
    const auto needles = static_cast<double>(std::count_if(
        bench_.cases.begin(), bench_.cases.end(), [](const CompressCase& one) { return one.needle; }));
    point.needles /= std::max(1.0, needles);
    point.questions /= std::max(1.0, static_cast<double>(bench_.cases.size()) - needles);
  }

  static bool note_answer(const CompressCase& one, const std::string& answer, CompressPoint& point) {
    const bool right = answer.find(one.expected) != std::string::npos;
    (one.needle ? point.needles : point.questions) += right;
    return right;
  }

  Result<TokenPrompt> encode(const std::string& text) const {
    Result<std::vector<Token>> tokens = bench_.target.tokenizer->encode(text, {.add_special = true});
    if (!tokens) return tokens.error();
    return TokenPrompt{std::move(*tokens), {}};
  }
  Result<int> count(const std::string& text) const {
    Result<std::vector<Token>> tokens = bench_.target.tokenizer->encode(text);
    if (!tokens) return tokens.error();
    return static_cast<int>(tokens->size());
  }

  // Every prompt is computed anew: no other has its salt.
  Result<Answered> answer(const TokenPrompt& prompt) {
    const compress::Caller caller{.client = "bench", .cache_salt = fmt::format("bench {}", ++salts_)};
    Answered out;
    const TimePoint start = Clock::now();
    compress::Writing writing{.prompt = prompt.tokens, .max_tokens = 1, .positions = prompt.positions};
    Result<compress::Written> first = compress::write(bench_.target, writing, caller);
    if (!first) return first.error();
    out.ttft_s = seconds_since(start);
    writing.max_tokens = bench_.answer_tokens;
    Result<compress::Written> all = compress::write(bench_.target, std::move(writing), caller);
    if (!all) return all.error();
    out.text = std::move(all->text);
    out.caller = caller;
    return out;
  }

  // Mean log-probability of the answer's tokens behind the prompt.
  Result<double> likelihood_of(TokenPrompt prompt, const std::string& text,
                               const compress::Caller& caller) const {
    Result<std::vector<Token>> answer = bench_.target.tokenizer->encode(text);
    if (!answer) return answer.error();
    const auto from = static_cast<int>(prompt.tokens.size());
    for (const Token token : *answer) {
      prompt.tokens.push_back(token);
      if (!prompt.positions.empty()) prompt.positions.push_back(prompt.positions.back() + 1);
    }
    Result<std::vector<std::vector<float>>> scored = compress::score(
        bench_.target, {{std::move(prompt.tokens), from, std::move(prompt.positions)}}, caller);
    if (!scored) return scored.error();
    const std::vector<float>& values = scored->front();
    return std::accumulate(values.begin(), values.end(), 0.0) / std::max<double>(1, double(values.size()));
  }

  Result<Shorter> shorten(const CompressCase& one, const CompressPoint& point) {
    if (const std::optional<compress::Mode> mode = mode_of(point.way))
      return compressed(one, *mode, point.ratio);
    Result<compress::MeasuredText> measured =
        compress::measure(*bench_.target.tokenizer, {.text = one.text}, nullptr);
    if (!measured) return measured.error();
    const int budget = static_cast<int>(point.ratio * measured->total());
    std::vector<size_t> order(measured->tokens.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});  // truncation keeps the end
    std::mt19937_64 random(point.way == ShorterBy::Random ? ++salts_ : 0);
    if (point.way == ShorterBy::Random) std::shuffle(order.begin(), order.end(), random);
    compress::Kept kept(order.size());
    int used = 0;
    for (const size_t word : order) {
      used += measured->tokens[word];
      if (used > budget) break;
      kept[word] = true;
    }
    return finished({.text = compress::join_kept(*measured, kept)}, one);
  }

  // With its prompt, as every way but Prefill makes it.
  Result<Shorter> finished(Shorter shorter, const CompressCase& one) const {
    Result<TokenPrompt> prompt = encode(shorter.text + one.question);
    if (!prompt) return prompt.error();
    shorter.prompt = std::move(*prompt);
    Result<int> kept = count(shorter.text);
    if (!kept) return kept.error();
    shorter.kept_tokens = *kept;
    return shorter;
  }

  Result<Shorter> prefilled(const CompressCase& one, const compress::Task& task) const {
    Result<TokenPrompt> prompt = encode(one.text + one.question);
    if (!prompt) return prompt.error();
    Result<compress::KeptTokens> made = bench_.compressor->keep_tokens(task, prompt->tokens);
    if (!made) return made.error();
    Result<compress::KeptTokens> again = bench_.compressor->keep_tokens(task, prompt->tokens);
    if (!again) return again.error();
    Shorter out{.text = std::move(made->text),
                .seconds = made->seconds,
                .cached_seconds = again->seconds,
                .kept_tokens = made->kept_tokens};
    for (const int32_t index : made->kept)
      out.prompt.tokens.push_back(prompt->tokens[static_cast<size_t>(index)]);
    out.prompt.positions = std::move(made->kept);
    return out;
  }

  Result<Shorter> compressed(const CompressCase& one, compress::Mode mode, double ratio) {
    const size_t marked = one.text.find(one.marked);
    compress::Task task{.options = {.mode = mode,
                                    .ratio = ratio,
                                    .schema = mode == compress::Mode::Extract ? one.schema : std::string(),
                                    .question = one.question},
                        .texts = {{.text = one.text, .marked = {{marked, marked + one.marked.size()}}}},
                        .caller = {.client = "bench", .cache_salt = fmt::format("bench {}", ++salts_)}};
    if (mode == compress::Mode::Prefill) return prefilled(one, task);
    Result<compress::Compressed> made = bench_.compressor->compress(task);
    if (!made) return made.error();
    Result<compress::Compressed> again = bench_.compressor->compress(task);
    if (!again) return again.error();
    return finished({.text = made->texts.front(), .seconds = made->seconds, .cached_seconds = again->seconds},
                    one);
  }

  const CompressBench& bench_;
  std::vector<std::string> answers_;
  std::vector<double> likelihoods_;
  uint64_t salts_ = 0;
};

}  // namespace

std::string_view name(ShorterBy way) {
  for (const WayName& row : kWays)
    if (row.way == way) return row.name;
  return "";
}

std::optional<ShorterBy> shorter_by(std::string_view name) {
  for (const WayName& row : kWays)
    if (row.name == name && row.way != ShorterBy::Nothing) return row.way;
  return std::nullopt;
}

Result<std::vector<CompressPoint>> run_compress_bench(const CompressBench& bench,
                                                      const std::function<void(const CompressPoint&)>& done) {
  BenchRun run(bench);
  std::vector<CompressPoint> points(1);
  if (Status status = run.prepare(points.front()); !status) return status.error();
  done(points.front());
  for (const double ratio : bench.ratios) {
    for (const ShorterBy way : bench.ways) {
      CompressPoint point{.way = way, .ratio = ratio};
      if (Status status = run.run(point); !status) return status.error();
      done(point);
      points.push_back(point);
    }
  }
  return points;
}

}  // namespace sluice::lab
