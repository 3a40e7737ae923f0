// Speed of the tokenizers.
//   bench_tokenizer linear                 1 and 2 MB of one repeated character through every pre-tokenizer: the table of
//                                     times, and exit code 1 where twice the input takes over 2.3 times as long
//   bench_tokenizer encode MODEL FILE [N]  the text of FILE to tokens on one thread, N times (5): the median MB/s
//   bench_tokenizer load MODEL [N]         a tokenizer from its file, N times (5): the median in milliseconds
// Times are the thread's processor time, so that other programs disturb them less.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/loaders/tokenizer_json.h"
#include "tokenizer/pre_tokenizer_names.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace sluice;
using namespace sluice::tokenizer;
using namespace sluice::unicode;

constexpr double most_growth = 2.3;  // of the time, for twice the input
constexpr size_t megabyte = 1'000'000;

struct Cut {
  std::string name;
  std::vector<PreTokenizerStep> steps;
};

// The kinds of tokenizer.json that have no name in GGUF files.
constexpr std::pair<std::string_view, std::string_view> json_cuts[] = {
    {"ByteLevel", R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})"},
    {"Digits", R"({"type":"Digits","individual_digits":false})"},
    {"Digits one by one", R"({"type":"Digits","individual_digits":true})"},
    {"Metaspace", R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})"},
    {"Punctuation", R"({"type":"Punctuation","behavior":"Isolated"})"},
    {"Punctuation runs", R"({"type":"Punctuation","behavior":"Contiguous"})"},
    {"Whitespace", R"({"type":"Whitespace"})"},
    {"WhitespaceSplit", R"({"type":"WhitespaceSplit"})"},
    {"BertPreTokenizer", R"({"type":"BertPreTokenizer"})"},
    {"CharDelimiterSplit", R"({"type":"CharDelimiterSplit","delimiter":" "})"},
    {"Split merged",
     R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithNext","invert":false})"},
};

constexpr std::pair<std::string_view, std::string_view> characters[] = {{"space", " "},
                                                                        {"newline", "\n"},
                                                                        {"tab", "\t"},
                                                                        {"a", "a"},
                                                                        {"A", "A"},
                                                                        {"digit", "1"},
                                                                        {"dot", "."},
                                                                        {"quote", "'"},
                                                                        {"less", "<"},
                                                                        {"e acute", "\u00E9"},
                                                                        {"han", "\u6F22"},
                                                                        {"combining", "\u0301"},
                                                                        {"emoji", "\U0001F642"}};

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "bench_tokenizer: {}\n", message);
  std::exit(1);
}

template <class T>
T take(Result<T> result) {
  if (!result) fail(result.error().message);
  return std::move(*result);
}

std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts;
  for (const std::string_view name : distinct_pre_tokenizers()) {
    cuts.push_back({name.empty() ? "(none)" : std::string(name), take(find_pre_tokenizer(name)).steps});
  }
  for (const auto& [name, source] : json_cuts) {
    Cut cut{std::string(name), {}};
    const json::value value = take(parse_json(source, "pre_tokenizer"));
    if (const Status status = parse_pre_tokenizer(value, cut.steps); !status) fail(status.error().message);
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

double time_cut(const Cut& cut, std::string_view character, size_t size) {
  std::string repeated;
  while (repeated.size() < size) repeated += character;
  AlignedText text;
  text.append(repeated, {});
  const double begin = now();
  take(pre_tokenize(cut.steps, std::move(text), true));
  return now() - begin;
}

struct Growth {
  double once = 0, twice = 0;  // seconds
  double ratio() const { return twice / once; }
};

// The two sizes in turn, so that a disturbance meets both.
Growth measure_growth(const Cut& cut, std::string_view character, int repeats) {
  std::vector<double> once, twice;
  for (int i = 0; i < repeats; ++i) {
    once.push_back(time_cut(cut, character, megabyte));
    twice.push_back(time_cut(cut, character, 2 * megabyte));
  }
  return {median(once), median(twice)};
}

int linear() {
  int over = 0;
  double worst = 0;
  fmt::print("| pre-tokenizer | character | 1 MB, ms | 2 MB, ms | ratio |\n|---|---|---:|---:|---:|\n");
  for (const Cut& cut : all_cuts()) {
    for (const auto& [name, character] : characters) {
      Growth growth = measure_growth(cut, character, 5);
      // More repeats tell a disturbance from growth.
      if (growth.ratio() > most_growth) growth = measure_growth(cut, character, 21);
      const bool is_over = growth.ratio() > most_growth;
      over += is_over;
      worst = std::max(worst, growth.ratio());
      fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f}{} |\n", cut.name, name, growth.once * 1e3,
                 growth.twice * 1e3, growth.ratio(), is_over ? " OVER" : "");
      std::fflush(stdout);
    }
  }
  fmt::print("\nworst ratio {:.2f}, {} over {}\n", worst, over, most_growth);
  return over == 0 ? 0 : 1;
}

int encode(const std::string& model, const std::string& file, int repeats) {
  const Tokenizer tokenizer = take(load_tokenizer(model));
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(fmt::format("cannot read {}", file));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<double> seconds;
  size_t count = 0;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now();
    count = take(tokenizer.encode(text)).size();
    seconds.push_back(now() - begin);
  }
  fmt::print("{} bytes, {} tokens, {:.2f} MB/s\n", text.size(), count,
             static_cast<double>(text.size()) * 1e-6 / median(seconds));
  return 0;
}

int load(const std::string& model, int repeats) {
  std::vector<double> seconds;
  int64_t size = 0;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now();
    size = take(load_tokenizer(model)).vocab_size();
    seconds.push_back(now() - begin);
  }
  fmt::print("{} tokens, {:.1f} ms\n", size, median(seconds) * 1e3);
  return 0;
}

int usage() {
  fmt::print(stderr, "usage: bench_tokenizer linear | encode MODEL FILE [N] | load MODEL [N]\n");
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto repeats = [&](size_t at) {
    return words.size() > at ? std::max(1, std::atoi(words[at].c_str())) : 5;
  };
  if (words.size() == 1 && words[0] == "linear") return linear();
  if (words.size() >= 3 && words[0] == "encode") return encode(words[1], words[2], repeats(3));
  if (words.size() >= 2 && words[0] == "load") return load(words[1], repeats(2));
  return usage();
}
