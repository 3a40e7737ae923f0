// The reference vocabularies of ../shared/tokenizers: every case exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <filesystem>
#include <sstream>

#include "formats/gguf/gguf.h"
#include "tests/tokenizer/random_text.h"
#include "tests/tokenizer/read_file.h"
#include "tokenizer/tokenizer.h"

namespace sluice::tokenizer {
namespace {

namespace fs = std::filesystem;

// The line break on either side of a marker belongs to it.
std::vector<std::string> read_texts(const fs::path& path) {
  const std::string all = read_file(path);
  const std::string marker = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  size_t begin = 0;
  for (size_t at = all.find(marker); at != std::string::npos; at = all.find(marker, begin)) {
    texts.push_back(all.substr(begin, at - begin));
    begin = at + marker.size();
  }
  texts.push_back(all.substr(begin));
  return texts;
}

std::vector<std::vector<Token>> read_ids(const fs::path& path) {
  std::vector<std::vector<Token>> lines;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    lines.emplace_back(std::istream_iterator<Token>(numbers), std::istream_iterator<Token>());
  }
  return lines;
}

class Vocabulary : public testing::TestWithParam<const char*> {};

TEST_P(Vocabulary, GivesTheReferenceIds) {
  const fs::path base = fs::path(SLUICE_SHARED) / "tokenizers" / GetParam();
  const fs::path model = base.string() + ".gguf";
  if (!fs::exists(model)) GTEST_SKIP() << model << " is not here";
  auto file = formats::open_gguf(model.string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto tokenizer = load_tokenizer_gguf(file->metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto texts = read_texts(base.string() + ".inp");
  const auto expected = read_ids(base.string() + ".out");
  ASSERT_GE(texts.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto ids = tokenizer->encode(texts[i]);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, expected[i]) << "case " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer->decode(*ids), texts[i]) << "case " << i;
  }
}

// The bytes that a vocabulary can write one by one. Some lack control characters and the first bytes of planes that hold
// no characters; no tokenizer writes those.
std::bitset<256> written_bytes(const Tokenizer& tokenizer) {
  std::bitset<256> written;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.piece_bytes(static_cast<Token>(id));
    if (bytes.size() == 1) written.set(static_cast<unsigned char>(bytes[0]));
  }
  return written;
}

void check_round_trips(const fs::path& model) {
  if (!fs::exists(model)) GTEST_SKIP() << model << " is not here";
  auto tokenizer = load_tokenizer(model.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::mt19937 random(17);
  const std::bitset<256> written = written_bytes(*tokenizer);
  const auto is_written = [&](char c) { return written[static_cast<unsigned char>(c)]; };
  for (int round = round_trips(500); round > 0;) {
    const std::string text = random_text(random);
    if (!std::all_of(text.begin(), text.end(), is_written)) continue;
    --round;
    // Where U+2581 stands for a space, one that was typed comes back as a space.
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    ASSERT_EQ(tokenizer->decode(*ids), text) << model;
  }
}

TEST_P(Vocabulary, RoundTripsRandomText) {
  check_round_trips(fs::path(SLUICE_SHARED) / "tokenizers" / (std::string(GetParam()) + ".gguf"));
}

INSTANTIATE_TEST_SUITE_P(Shared, Vocabulary,
                         testing::Values("deepseek-llm", "falcon", "gpt-2", "llama-spm", "phi-3",
                                         "starcoder"));

TEST(DefaultModel, RoundTripsRandomText) {
  const char* models = std::getenv("SLUICE_MODELS");
  if (models == nullptr) GTEST_SKIP() << "SLUICE_MODELS names no folder";
  check_round_trips(fs::path(models) / "SmolLM2-135M-Instruct.Q4_1.gguf");
}

}  // namespace
}  // namespace sluice::tokenizer
