// The reference vocabularies of ../shared/tokenizers: every case exact.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

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

INSTANTIATE_TEST_SUITE_P(Shared, Vocabulary,
                         testing::Values("deepseek-llm", "falcon", "gpt-2", "llama-spm", "phi-3",
                                         "starcoder"));

}  // namespace
}  // namespace sluice::text
