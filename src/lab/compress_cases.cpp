// The texts and questions of `sluice bench compress`.
#include <fmt/format.h>

#include <array>
#include <random>

#include "compress/text_units.h"
#include "lab/compress_bench.h"

namespace sluice::lab {

namespace {

constexpr std::array kWho{"The gardener", "A neighbour", "The old teacher", "One of the drivers",
                          "The baker",    "A visitor",   "The engineer",    "Nobody in the village"};
constexpr std::array kDid{"walked along the river",       "talked about the weather",
                          "repaired a wooden fence",      "read the morning paper",
                          "waited for the evening train", "painted the kitchen walls",
                          "looked for a lost basket",     "carried apples to the market"};
constexpr std::array kWhy{"because the day was warm",    "while the others were asleep",
                          "before the shops had opened", "as people there often do",
                          "without saying much",         "and thought little of it",
                          "until it became dark",        "which took most of the afternoon"};
constexpr std::array kThings{"red door", "blue safe",   "north gate",  "garden shed",
                             "old boat", "wine cellar", "school desk", "tool box"};
constexpr std::array kPeople{"Amina", "Boris", "Chen", "Dalia", "Edgar", "Fatou", "Gustav", "Hana"};

class Filler {
 public:
  Filler(const std::string& text, uint64_t seed) : random_(seed) {
    const compress::TextUnits units = compress::split_text(text);
    for (const compress::Sentence& s : units.sentences) {
      const size_t begin = units.words[s.first].text_begin;
      sentences_.push_back(text.substr(begin, units.words[s.end - 1].bytes.end - begin));
    }
    at_ = sentences_.empty() ? 0 : random_() % sentences_.size();
  }
  std::string next() {
    if (!sentences_.empty()) return sentences_[at_++ % sentences_.size()];
    return fmt::format("{} {} {}.", kWho[random_() % kWho.size()], kDid[random_() % kDid.size()],
                       kWhy[random_() % kWhy.size()]);
  }
  uint64_t number() { return random_(); }

 private:
  std::mt19937_64 random_;
  std::vector<std::string> sentences_;
  size_t at_ = 0;
};

// A few short texts: what a small model can write, too, and what ends within a few hundred tokens.
constexpr const char* kFactsSchema =
    R"({"type":"object","properties":{"facts":{"type":"array","minItems":1,"maxItems":8,)"
    R"("items":{"type":"string","maxLength":60}}},"required":["facts"],"additionalProperties":false})";

struct Haystack {
  std::string text, marked;
};

// About four bytes of prose are a token. The facts stand at equal distances, the first at `depth`; a sentence in the middle
// is the marked one.
Haystack haystack(Filler& filler, int tokens, const std::vector<std::string>& facts, double depth) {
  const auto bytes = static_cast<size_t>(tokens) * 9 / 2;
  std::string text, marked;
  size_t next = 0;
  while (text.size() < bytes) {
    const double share = static_cast<double>(text.size()) / static_cast<double>(bytes);
    const double due = depth + (1 - depth) * static_cast<double>(next) / static_cast<double>(facts.size());
    if (next < facts.size() && share >= due) text += facts[next++] + " ";
    const std::string sentence = filler.next();
    if (marked.empty() && share >= 0.5) marked = sentence;
    text += sentence + " ";
  }
  for (; next < facts.size(); ++next) text += facts[next] + " ";
  return {std::move(text), std::move(marked)};
}

}  // namespace

std::vector<CompressCase> make_compress_cases(const CompressWorkload& workload) {
  Filler filler(workload.filler, workload.seed);
  std::vector<CompressCase> cases;
  for (int i = 0; i < workload.cases; ++i) {
    const double depth = workload.cases == 1 ? 0.5 : 0.05 + 0.9 * i / (workload.cases - 1);
    const std::string code = std::to_string(1000 + filler.number() % 9000);
    const char* thing = kThings[filler.number() % kThings.size()];
    Haystack made = haystack(filler, workload.tokens,
                             {fmt::format("The secret number of the {} is {}.", thing, code)}, depth);
    cases.push_back({.name = fmt::format("needle at {:.0f} %", depth * 100),
                     .text = std::move(made.text),
                     .question = fmt::format("\nQuestion: What is the secret number of the {}?\nAnswer: The "
                                             "secret number of the {} is",
                                             thing, thing),
                     .expected = code,
                     .marked = std::move(made.marked),
                     .schema = kFactsSchema,
                     .needle = true});
  }
  for (int i = 0; i < workload.cases; ++i) {
    std::vector<std::string> facts, ages;
    for (const char* person : kPeople) {
      ages.push_back(std::to_string(20 + filler.number() % 70));
      facts.push_back(fmt::format("{} is {} years old.", person, ages.back()));
    }
    const size_t asked = filler.number() % kPeople.size();
    Haystack made = haystack(filler, workload.tokens, facts, 0);
    cases.push_back(
        {.name = fmt::format("question {}", i + 1),
         .text = std::move(made.text),
         .question = fmt::format("\nQuestion: How old is {}?\nAnswer: {} is", kPeople[asked], kPeople[asked]),
         .expected = ages[asked],
         .marked = std::move(made.marked),
         .schema = kFactsSchema});
  }
  return cases;
}

}  // namespace sluice::lab
