// What constraints cost: bench_grammar MODEL SCHEMAS
// MODEL is anything that has a tokenizer, SCHEMAS a file like tests/grammar/data/schemas.json. For each schema: the time
// from its text to the first mask, and of each mask while its valid values are written token by token. Processor time of
// one thread, so that other programs disturb it less.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/system/file.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace sluice;

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double at(std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

struct Times {
  std::vector<double> first, mask;

  void show(const char* what, std::vector<double>& list) const {
    std::sort(list.begin(), list.end());
    double sum = 0;
    for (const double one : list) sum += one;
    fmt::print("{:<20} {:>7} times, mean {:8.1f} us, p50 {:8.1f}, p99 {:8.1f}, most {:8.1f}\n", what,
               list.size(), 1e6 * sum / static_cast<double>(std::max<size_t>(1, list.size())),
               1e6 * at(list, 0.5), 1e6 * at(list, 0.99), list.empty() ? 0 : 1e6 * list.back());
  }
};

void measure(const json::value& one, const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
             const tokenizer::Tokenizer& tokenizer, Times& times) {
  std::vector<int32_t> mask(vocabulary->mask_words());
  const double begin = seconds();
  Result<grammar::PreparedConstraint> prepared = grammar::prepare(
      {request::JsonSchema{.schema = write_json(one.at("schema")), .closed_objects = false}, ""});
  if (!prepared) return;
  const auto compiled = grammar::CompiledGrammar::compile(std::move(*prepared), vocabulary);
  if (!compiled) return;
  const grammar::Matcher start(*compiled, vocabulary->end_tokens());
  (void)start.fill(mask);
  times.first.push_back(seconds() - begin);
  for (const json::value& value : one.at("valid").get_array()) {
    Result<std::vector<Token>> tokens = tokenizer.encode(write_json(value));
    if (!tokens) continue;
    grammar::Matcher matcher = start;
    for (const Token token : *tokens) {
      const double before = seconds();
      (void)matcher.fill(mask);
      times.mask.push_back(seconds() - before);
      if (matcher.ended() || !matcher.accept(token)) break;
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    fmt::print(stderr, "bench_grammar MODEL SCHEMAS\n");
    return 64;
  }
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(words[1]);
  Result<std::string> text = read_regular_file(words[2], size_t{64} << 20);
  if (!tokenizer || !text) {
    fmt::print(stderr, "{}\n", tokenizer ? text.error().message : tokenizer.error().message);
    return 74;
  }
  Result<json::value> schemas = parse_json(*text, words[2]);
  if (!schemas || !schemas->is_array()) return 74;
  const auto width = static_cast<int>(tokenizer->vocab_size());
  const double begin = seconds();
  const auto vocabulary =
      std::make_shared<const grammar::Vocabulary>(*tokenizer, width, tokenizer->special().end_of_generation);
  fmt::print("{} tokens, made ready in {:.1f} ms\n", width, 1e3 * (seconds() - begin));
  Times times;
  for (const json::value& one : schemas->get_array()) measure(one, vocabulary, *tokenizer, times);
  times.show("schema to first mask", times.first);
  times.show("mask of a token", times.mask);
  return 0;
}
