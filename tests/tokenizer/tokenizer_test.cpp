// What holds for every tokenizer: marked spans, streaming, round trips, linear time, errors.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "tests/tokenizer/random_text.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer_names.h"
#include "tokenizer/stream_decoder.h"
#include "unicode/unicode.h"
#include "unicode/utf8_stream.h"

namespace sluice::tokenizer {
namespace {

namespace fs = std::filesystem;

Tokenizer own(const std::string& name) {
  auto tokenizer = load_tokenizer((fs::path(SLUICE_TEST_DATA) / "tokenizers" / name).string());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(*tokenizer);
}

TEST(Tokenizer, RoundTripsRandomText) {
  const int rounds = round_trips(2000);
  for (const char* name : {"byte_gpt2", "byte_llama3", "byte_falcon", "byte_o200k", "sentence_bpe"}) {
    const Tokenizer tokenizer = own(name);
    std::mt19937 random(11);
    for (int round = 0; round < rounds; ++round) {
      const std::string text = random_text(random);
      // A mark for spaces that was typed comes back as a space.
      if (std::string(name) == "sentence_bpe" && text.find("\xE2\x96\x81") != std::string::npos) continue;
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids.ok());
      ASSERT_EQ(tokenizer.decode(*ids), text) << name;
    }
  }
}

TEST(Tokenizer, KnowsHowManyTokensATextHasAtLeast) {
  std::mt19937 random(17);
  for (const char* name : {"byte_gpt2", "byte_llama3", "byte_falcon", "byte_o200k", "sentence_bpe", "bert",
                           "word_level", "unigram_first", "unigram_bytes", "char_suffix"}) {
    const Tokenizer tokenizer = own(name);
    std::vector<std::string> texts{std::string(5000, ' '), std::string(5000, '\n'), std::string(5000, '\x04'),
                                   std::string(5000, 'e')};
    for (int i = 0; i < 1000; ++i) texts[0] += "\xE2\x96\x81";  // a mark for spaces
    for (int i = 0; i < 300; ++i) texts.push_back(random_text(random));
    for (const std::string& text : texts) {
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids.ok());
      ASSERT_LE(tokenizer.least_tokens(text), ids->size()) << name;
    }
    // Some have no bound: unknown words of any length are one token, or an added token takes the space beside it.
    const bool bounded =
        std::set<std::string>{"byte_llama3", "byte_falcon", "byte_o200k", "sentence_bpe", "unigram_bytes"}
            .contains(name);
    EXPECT_EQ(tokenizer.least_tokens(std::string(100'000, 'e')) > 100, bounded) << name;
  }
}

TEST(Tokenizer, StreamsExactlyWhatItDecodes) {
  std::mt19937 random(13);
  for (const char* name : {"byte_gpt2", "char_suffix", "char_prefix", "sentence_bpe", "unigram_first",
                           "unigram_bytes", "bert", "word_level"}) {
    const Tokenizer tokenizer = own(name);
    for (int round = 0; round < 500; ++round) {
      std::vector<Token> ids;
      for (size_t i = random() % 12; i > 0; --i) {
        ids.push_back(static_cast<Token>(random() % static_cast<uint32_t>(tokenizer.vocab_size() + 2)) - 1);
      }
      const bool skips = random() % 2 == 0;
      StreamDecoder decoder(tokenizer, skips);
      std::string text;
      for (const Token id : ids) {
        const std::string delta = decoder.push(id);
        ASSERT_TRUE(unicode::is_valid_utf8(delta));
        text += delta;
      }
      text += decoder.finish();
      ASSERT_EQ(text, tokenizer.decode(ids, skips)) << name;
    }
  }
}

TEST(Tokenizer, ReadsSpecialTokensOnlyWhereAsked) {
  const Tokenizer tokenizer = own("byte_gpt2");
  const Token special = *tokenizer.find("<|special|>");
  EXPECT_TRUE(tokenizer.is_special(special));
  EXPECT_EQ(*tokenizer.encode("<|special|>", {.parse_special = true}), std::vector<Token>{special});
  EXPECT_GT(tokenizer.encode("<|special|>")->size(), 1u);
}

TEST(Tokenizer, KeepsUserInputPlain) {
  const Tokenizer tokenizer = own("byte_gpt2");
  const Token special = *tokenizer.find("<|special|>");
  const auto count = [&](std::vector<TextSpan> spans) {
    const auto ids = tokenizer.encode(spans, {.parse_special = true});
    EXPECT_TRUE(ids.ok());
    std::string text;
    for (const TextSpan& span : spans) text += span.text;
    EXPECT_EQ(tokenizer.decode(*ids), text);
    return std::count(ids->begin(), ids->end(), special);
  };
  EXPECT_EQ(count({{"<|special|>", false}, {"hi", true}, {"<|special|>", false}}), 2);
  EXPECT_EQ(count({{"<|special|>", false}, {"<|special|>", true}, {"<|special|>", false}}), 2);
  EXPECT_EQ(count({{"<|spe", false}, {"cial|>", true}}), 0);
  EXPECT_EQ(count({{"<|spe", true}, {"cial|>", false}}), 0);
  EXPECT_EQ(count({{"<|spe", false}, {"", true}, {"cial|>", false}}), 1);
  // Borders of spans are no borders of tokens.
  const std::vector<TextSpan> parts = {{"The qu", false}, {"ick bro", true}, {"wn fox", false}};
  EXPECT_EQ(*tokenizer.encode(parts), *tokenizer.encode("The quick brown fox"));
}

TEST(Tokenizer, SaysWhichBytesATokenStandsFor) {
  const Tokenizer tokenizer = own("bert");
  const std::string text = "  Straße, Ümläute! 漢字";
  const auto tokens = tokenizer.encode_with_ranges(text);
  ASSERT_TRUE(tokens.ok());
  size_t end = 0;
  for (const TokenRange& token : *tokens) {
    EXPECT_GE(token.begin, end);
    end = token.end;
  }
  EXPECT_EQ(end, text.size());
}

TEST(Tokenizer, TakesBytesThatAreNotUtf8) {
  for (const char* name : {"byte_llama3", "sentence_bpe", "unigram_first", "bert"}) {
    const Tokenizer tokenizer = own(name);
    const std::string text = "a\xFF\xC3(\xE2\x82";
    EXPECT_EQ(*tokenizer.encode(text), *tokenizer.encode(unicode::to_valid_utf8(text)));
    EXPECT_EQ(tokenizer.encode_with_ranges(text)->size(), tokenizer.encode(text)->size());
  }
}

TEST(Tokenizer, RefusesBrokenFiles) {
  for (const char* text :
       {"", "[]", "{}", "{\"model\":null}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}",
        "{\"model\":{\"type\":\"Other\",\"vocab\":{}}}",
        "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}},\"normalizer\":{\"type\":\"Precompiled\","
        "\"precompiled_charsmap\":\"////\"}}",
        "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}},\"pre_tokenizer\":{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}"}) {
    EXPECT_FALSE(parse_tokenizer_json(text).ok()) << text;
  }
  formats::GgufMetadata metadata;
  EXPECT_FALSE(load_tokenizer_gguf(metadata).ok());
  metadata.set("tokenizer.ggml.model", std::string_view("gpt2"));
  EXPECT_FALSE(load_tokenizer_gguf(metadata).ok());
}

TEST(Tokenizer, RefusesTemplatesThatAreNoFiles) {
  const fs::path folder = fs::path(testing::TempDir()) / "tokenizer_with_pipe";
  fs::remove_all(folder);
  fs::copy(fs::path(SLUICE_TEST_DATA) / "tokenizers/byte_gpt2", folder);
  ASSERT_TRUE(load_tokenizer(folder.string()));
  fs::remove(folder / "chat_template.jinja");
  ASSERT_EQ(mkfifo((folder / "chat_template.jinja").c_str(), 0600), 0);
  const auto tokenizer = load_tokenizer(folder.string());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message.find("chat_template.jinja' is not a regular file"), std::string::npos)
      << tokenizer.error().message;
  fs::remove_all(folder);
}

double cpu_seconds(const auto& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = now();
  work();
  return now() - begin;
}

// Sixteen times as much of one character takes nowhere near 256 times as long, through every pre-tokenizer. The
// bound is loose on purpose: a test on a busy machine tells linear from quadratic, and no more; bench_text
// measures.
TEST(PreTokenizer, TakesLinearTime) {
  constexpr size_t size = size_t{1} << 18;
  for (const std::string_view name : distinct_pre_tokenizers()) {
    const auto named = find_pre_tokenizer(name);
    ASSERT_TRUE(named.ok()) << named.error().message;
    for (const char32_t code :
         {U'a', U'A', U' ', U'\n', U'1', U'.', U'\'', U'\u00E9', U'\u6F22', U'\u0301'}) {
      const auto run = [&](size_t bytes) {
        std::string character;
        unicode::append_utf8(character, code);
        unicode::AlignedText text;
        for (size_t i = 0; i < bytes / character.size(); ++i) text.append(character, {});
        return cpu_seconds(
            [&] { EXPECT_TRUE(pre_tokenize(named->steps, std::move(text), true).ok()) << name; });
      };
      const double part = std::min(run(size / 16), run(size / 16));
      double whole = run(size);
      for (int again = 0; again < 4 && whole > 40 * part + 0.02; ++again) whole = std::min(whole, run(size));
      EXPECT_LE(whole, 40 * part + 0.02) << name << " U+" << std::hex << static_cast<uint32_t>(code);
    }
  }
}

class StopsTheThirdTime : public Interrupt {
 public:
  Status check() override {
    return ++looks < 3 ? Status() : Status(Error{ErrorCode::Unavailable, "stopped"});
  }
  int looks = 0;
};

Result<Tokenizer> pattern_tokenizer(const std::string& pattern) {
  return parse_tokenizer_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"c":1,"aa":2," ":3},"merges":["a a"]},"pre_tokenizer":)"
      R"({"type":"Split","pattern":{"Regex":")" +
      pattern + R"("},"behavior":"Isolated"}})");
}

// One word or many: the encoding stops in the pattern, between words and inside of a word.
TEST(Tokenizer, CanBeStopped) {
  for (const std::string pattern : {"[ac]+", "(?:a|c)+?(?= )", " "}) {
    const auto tokenizer = pattern_tokenizer(pattern);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const std::string word : {"aaac ", "aaac"}) {
      std::string text;
      while (text.size() < 12'000) text += word;
      StopsTheThirdTime interrupt;
      const auto tokens = tokenizer->encode(text, {.interrupt = &interrupt});
      ASSERT_FALSE(tokens.ok()) << pattern;
      EXPECT_EQ(tokens.error().message, "stopped");
      EXPECT_EQ(interrupt.looks, 3);
    }
  }
}

// No match comes near the limit of one; together they would take an hour.
TEST(Tokenizer, PatternsOfAFileHaveABudgetForTheWholeText) {
  const auto tokenizer = pattern_tokenizer("(?:a|aa)+b|[ac]");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string run = std::string(24, 'a') + "c ";
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += run;
  EXPECT_TRUE(tokenizer->encode(run).ok());
  const double seconds = cpu_seconds([&] {
    const auto tokens = tokenizer->encode(text);
    ASSERT_FALSE(tokens.ok());
    EXPECT_EQ(tokens.error().code, ErrorCode::LimitExceeded);
    EXPECT_NE(tokens.error().message.find("budget of 86560000 match steps"), std::string::npos)
        << tokens.error().message;
  });
  EXPECT_LT(seconds, 20);
}

// Flags are pairs of regional indicators: where a pair begins depends on how many stand before it.
TEST(Normalizer, FindsClustersInLinearTime) {
  auto map = Charsmap::parse(std::string("\x08\0\0\0", 4) + std::string(8, '\0') + std::string("a\0", 2));
  ASSERT_TRUE(map.ok()) << map.error().message;
  auto cluster = unicode::Pattern::compile("\\X");
  ASSERT_TRUE(cluster.ok());
  const std::vector<NormalizerStep> steps{
      PrecompiledClusters{std::make_shared<const Charsmap>(std::move(*map)), std::move(*cluster)}};
  const auto run = [&](size_t count) {
    unicode::AlignedText text;
    for (size_t i = 0; i < count; ++i) text.append("\U0001F1E9", {});
    return cpu_seconds([&] { EXPECT_EQ(normalize(steps, std::move(text))->size(), 4 * count); });
  };
  const double part = std::min(run(1 << 12), run(1 << 12));
  EXPECT_LE(std::min({run(1 << 16), run(1 << 16), run(1 << 16)}), 40 * part + 0.02);
}

// A run that is cut at fixed lengths is searched for a line break once, wherever the break is.
TEST(PreTokenizer, CutsRunsOfSpacesAtTheSamePlacesHoweverLongTheyAre) {
  const auto named = find_pre_tokenizer("jais-2");
  ASSERT_TRUE(named.ok());
  const auto sizes = [&](const std::string& input) {
    unicode::AlignedText text;
    text.append(input, {});
    const auto words = pre_tokenize(named->steps, std::move(text), true);
    EXPECT_TRUE(words.ok());
    std::vector<uint32_t> lengths;
    for (const unicode::TextRange range : words->ranges) lengths.push_back(range.size());
    return lengths;
  };
  using Sizes = std::vector<uint32_t>;
  EXPECT_EQ(sizes(std::string(1025, ' ')), (Sizes{512, 512, 1}));
  EXPECT_EQ(sizes(std::string(1025, ' ') + "\n"), (Sizes{1026}));
  EXPECT_EQ(sizes(std::string(513, ' ') + "x" + std::string(3, ' ') + "\n "), (Sizes{512, 2, 4, 1}));
  EXPECT_EQ(sizes(std::string(600, ' ') + "x"), (Sizes{512, 64, 16, 4, 2, 1, 2}));
}

}  // namespace
}  // namespace sluice::tokenizer
