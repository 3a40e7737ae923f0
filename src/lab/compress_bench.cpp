#include "lab/compress_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/clock.h"
#include "compress/engine_calls.h"
#include "compress/information.h"
#include "compress/selection.h"

namespace sluice::lab {

namespace {

// One text made shorter, without its question.
struct Shorter {
  std::string text;
  double seconds = 0, cached_seconds = 0;
};

class BenchRun {
 public:
  explicit BenchRun(const CompressBench& bench) : bench_(bench) {}

  // The answers of the full prompts, which the others are held to.
  Status prepare(CompressPoint& point) {
    for (const CompressCase& one : bench_.cases) {
      Result<Answered> full = answer(one.text + one.question);
      if (!full) return full.error();
      point.ttft_s += full->ttft_s;
      point.exact += full->text.find(one.expected) != std::string::npos;
      Result<double> likelihood = likelihood_of(one.text + one.question, full->text);
      if (!likelihood) return likelihood.error();
      answers_.push_back(full->text);
      likelihoods_.push_back(*likelihood);
    }
    divide(point);
    point.cached_ttft_s = point.ttft_s;
    return {};
  }

  Status run(CompressPoint& point) {
    point.kept = 0;
    for (size_t i = 0; i < bench_.cases.size(); ++i) {
      const CompressCase& one = bench_.cases[i];
      Result<Shorter> shorter = shorten(one, point);
      if (!shorter) return shorter.error();
      const std::string prompt = shorter->text + one.question;
      Result<Answered> given = answer(prompt);
      if (!given) return given.error();
      Result<double> likelihood = likelihood_of(prompt, answers_[i]);
      if (!likelihood) return likelihood.error();
      Result<int> before = count(one.text), after = count(shorter->text);
      if (!before || !after) return before ? after.error() : before.error();
      point.kept += double(*after) / std::max(1, *before);
      point.compress_s += shorter->seconds;
      point.ttft_s += shorter->seconds + given->ttft_s;
      point.cached_ttft_s += shorter->cached_seconds + given->ttft_s;
      point.loss += likelihoods_[i] - *likelihood;
      point.exact += given->text.find(one.expected) != std::string::npos;
    }
    point.kept /= static_cast<double>(bench_.cases.size());
    divide(point);
    return {};
  }

 private:
  struct Answered {
    std::string text;
    double ttft_s = 0;
  };

  void divide(CompressPoint& point) const {
    for (double* sum : {&point.compress_s, &point.ttft_s, &point.cached_ttft_s, &point.loss, &point.exact})
      *sum /= static_cast<double>(bench_.cases.size());
  }

  Result<std::vector<Token>> encode(const std::string& text) const {
    return bench_.target.tokenizer->encode(text, {.add_special = true});
  }
  Result<int> count(const std::string& text) const {
    Result<std::vector<Token>> tokens = bench_.target.tokenizer->encode(text);
    if (!tokens) return tokens.error();
    return static_cast<int>(tokens->size());
  }

  // Every prompt is computed anew: no other has its salt.
  Result<Answered> answer(const std::string& prompt) {
    Result<std::vector<Token>> tokens = encode(prompt);
    if (!tokens) return tokens.error();
    const compress::Caller caller{.client = "bench", .cache_salt = fmt::format("bench {}", ++salts_)};
    Answered out;
    const TimePoint start = Clock::now();
    Result<compress::Written> first =
        compress::write(bench_.target, {.prompt = *tokens, .max_tokens = 1}, caller);
    if (!first) return first.error();
    out.ttft_s = seconds_since(start);
    Result<compress::Written> all = compress::write(
        bench_.target, {.prompt = std::move(*tokens), .max_tokens = bench_.answer_tokens}, caller);
    if (!all) return all.error();
    out.text = std::move(all->text);
    return out;
  }

  // Mean log-probability of the answer's tokens behind the prompt.
  Result<double> likelihood_of(const std::string& prompt, const std::string& text) const {
    Result<std::vector<Token>> tokens = encode(prompt);
    if (!tokens) return tokens.error();
    Result<std::vector<Token>> answer = bench_.target.tokenizer->encode(text);
    if (!answer) return answer.error();
    const auto from = static_cast<int>(tokens->size());
    tokens->insert(tokens->end(), answer->begin(), answer->end());
    Result<std::vector<std::vector<float>>> scored =
        compress::score(bench_.target, {{std::move(*tokens), from}}, {.client = "bench"});
    if (!scored) return scored.error();
    const std::vector<float>& values = scored->front();
    return std::accumulate(values.begin(), values.end(), 0.0) / std::max<double>(1, double(values.size()));
  }

  Result<Shorter> shorten(const CompressCase& one, const CompressPoint& point) {
    if (point.way == ShorterBy::Tokens || point.way == ShorterBy::Summary) return compressed(one, point);
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
    return Shorter{.text = compress::join_kept(*measured, kept)};
  }

  Result<Shorter> compressed(const CompressCase& one, const CompressPoint& point) {
    compress::Task task{.options = {.mode = point.way == ShorterBy::Summary ? compress::Mode::Summary
                                                                            : compress::Mode::Tokens,
                                    .ratio = point.ratio,
                                    .question = one.question},
                        .texts = {{.text = one.text}},
                        .caller = {.client = "bench", .cache_salt = fmt::format("bench {}", ++salts_)}};
    Result<compress::Compressed> made = bench_.compressor->compress(task);
    if (!made) return made.error();
    Result<compress::Compressed> again = bench_.compressor->compress(task);
    if (!again) return again.error();
    return Shorter{.text = made->texts.front(), .seconds = made->seconds, .cached_seconds = again->seconds};
  }

  const CompressBench& bench_;
  std::vector<std::string> answers_;
  std::vector<double> likelihoods_;
  uint64_t salts_ = 0;
};

}  // namespace

std::string_view name(ShorterBy way) {
  switch (way) {
    case ShorterBy::Nothing:
      return "full";
    case ShorterBy::Tokens:
      return "tokens";
    case ShorterBy::Summary:
      return "summary";
    case ShorterBy::Truncation:
      return "truncation";
    case ShorterBy::Random:
      return "random";
  }
  return "";
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
