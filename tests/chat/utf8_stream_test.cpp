#include "unicode/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "chat/stop_strings.h"

namespace sluice::chat {
namespace {

const std::string bad = "\xEF\xBF\xBD";

std::string in_cuts(std::string_view bytes, size_t cut) {
  unicode::Utf8Stream stream;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += cut) {
    stream.push(bytes.substr(i, cut), out);
    EXPECT_LE(stream.held(), 3u);
  }
  stream.finish(out);
  return out;
}

TEST(Utf8Stream, GivesOneReplacementPerMaximalSubpart) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain", "plain"},
      {"\xC3\xA9", "\xC3\xA9"},
      {"a\x80z", "a" + bad + "z"},
      {"\xF0\x9F\x98", bad},                        // unfinished
      {"\xF0\x9F\x98z", bad + "z"},                 // cut short by another character
      {"\xE0\x80\x80", bad + bad + bad},            // overlong
      {"\xED\xA0\x80", bad + bad + bad},            // surrogate
      {"\xF4\x90\x80\x80", bad + bad + bad + bad},  // beyond U+10FFFF
      {"\xC0\xAF\xFE\xFF", bad + bad + bad + bad},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", bad + bad + bad + bad + "A"},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(unicode::to_valid_utf8(bytes), expected);
    for (size_t cut = 1; cut < 5; ++cut) EXPECT_EQ(in_cuts(bytes, cut), expected);
  }
}

TEST(Utf8Stream, DoesNotDependOnTheCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i)
      bytes += static_cast<char>(random() % 3 == 0 ? random() : 0x80 + random() % 0x80);
    const std::string whole = unicode::to_valid_utf8(bytes);
    EXPECT_TRUE(unicode::is_valid_utf8(whole));
    EXPECT_EQ(unicode::is_valid_utf8(bytes), whole == bytes);
    for (size_t cut = 1; cut < 4; ++cut) ASSERT_EQ(in_cuts(bytes, cut), whole);
  }
}

struct Outcome {
  std::string text;
  std::optional<size_t> stopped_by;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(StopMatcher& matcher, std::string_view text, std::mt19937& random) {
  Outcome outcome;
  while (!text.empty()) {
    const size_t size = 1 + random() % std::min<size_t>(text.size(), 4);
    StopMatcher::Step step = matcher.push(text.substr(0, size));
    outcome.text += step.text;
    if (step.stopped_by) outcome.stopped_by = step.stopped_by;
    if (outcome.stopped_by) return outcome;
    text.remove_prefix(size);
  }
  outcome.text += matcher.finish();
  return outcome;
}

// The string that is complete first; of those, the longest.
Outcome naive(const std::vector<std::string>& strings, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < strings.size(); ++i) {
      const bool ends = std::string_view(text).substr(0, end).ends_with(strings[i]);
      if (ends && (!best || strings[i].size() > strings[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - strings[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AgreesWithTheNaiveSearch) {
  std::mt19937 random(5);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t i = 1 + random() % most; i > 0; --i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> strings;
    for (size_t i = 1 + random() % 4; i > 0; --i) strings.push_back(word(5));
    const std::string text = word(20);
    auto matcher = StopMatcher::make(strings);
    ASSERT_TRUE(matcher.ok());
    ASSERT_EQ(feed(*matcher, text, random), naive(strings, text)) << text;
  }
}

TEST(StopMatcher, IsSmallForTheLongestStrings) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < StopLimits::strings; ++i)
    strings.emplace_back(StopLimits::bytes, static_cast<char>('a' + i));
  const auto matcher = StopMatcher::make(strings);
  ASSERT_TRUE(matcher.ok());
  EXPECT_LT(matcher->bytes(), 64'000u);
}

TEST(StopMatcher, HoldsBackOnlyWhatMayStop) {
  const std::vector<std::string> strings = {"END", "\n\nUser:"};
  auto matcher = StopMatcher::make(strings);
  ASSERT_TRUE(matcher.ok());
  EXPECT_EQ(matcher->push("the E").text, "the ");
  EXPECT_EQ(matcher->push("N").text, "");
  EXPECT_EQ(matcher->push("d\n").text, "ENd");
  EXPECT_EQ(matcher->push("\nUser").text, "");
  const auto step = matcher->push(": more");
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.stopped_by, 1u);
  EXPECT_EQ(matcher->push("ignored").text, "");
  EXPECT_EQ(matcher->finish(), "");
}

TEST(StopMatcher, RefusesWhatIsOverItsLimits) {
  EXPECT_FALSE(StopMatcher::make(std::vector<std::string>(17, "x")).ok());
  EXPECT_FALSE(StopMatcher::make(std::vector<std::string>{std::string(257, 'x')}).ok());
  EXPECT_FALSE(StopMatcher::make(std::vector<std::string>{""}).ok());
  EXPECT_TRUE(StopMatcher::make(std::vector<std::string>(16, std::string(256, 'x'))).ok());
}

}  // namespace
}  // namespace sluice::chat
