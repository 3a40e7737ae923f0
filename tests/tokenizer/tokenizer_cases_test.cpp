// tokenizer.json of every kind of part, against what the `tokenizers` package makes of the same texts. The folders are
// made by tools/make_tokenizer_cases.py; some lie in data/, more can be named in SLUICE_TOKENIZER_CASES.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "tests/tokenizer/read_file.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace sluice::tokenizer {
namespace {

namespace fs = std::filesystem;

std::vector<Token> to_ids(const json::value& list) {
  std::vector<Token> ids;
  for (const json::value& id : list.as_array()) ids.push_back(static_cast<Token>(id.as_int64()));
  return ids;
}

void check_case(const Tokenizer& tokenizer, const json::object& entry) {
  const std::string text(entry.at("text").as_string());
  const auto ids = tokenizer.encode(text, {.parse_special = true});
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(*ids, to_ids(entry.at("ids"))) << "text: " << json::serialize(entry.at("text"));
  EXPECT_EQ(*tokenizer.encode(text, {.parse_special = true, .add_special = true}),
            to_ids(entry.at("special")))
      << "text: " << json::serialize(entry.at("text"));
  if (!entry.at("plain").is_null()) {
    EXPECT_EQ(*tokenizer.encode(text), to_ids(entry.at("plain")))
        << "text: " << json::serialize(entry.at("text"));
  }
  EXPECT_EQ(tokenizer.decode(to_ids(entry.at("ids"))), std::string(entry.at("decoded").as_string()))
      << "text: " << json::serialize(entry.at("text"));
  // With ranges the ids are the same, and each range lies in the text.
  const auto ranges = tokenizer.encode_with_ranges(text, {.parse_special = true});
  ASSERT_EQ(ranges->size(), ids->size());
  for (size_t i = 0; i < ids->size(); ++i) {
    EXPECT_EQ((*ranges)[i].id, (*ids)[i]);
    EXPECT_LE((*ranges)[i].begin, (*ranges)[i].end);
    EXPECT_LE((*ranges)[i].end, text.size());
  }
}

void check_folder(const fs::path& folder) {
  SCOPED_TRACE(folder.string());
  auto tokenizer = load_tokenizer_hf(folder.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto cases = parse_json(read_file(folder / "cases.json"), "cases.json");
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  for (const json::value& entry : cases->as_array()) check_case(*tokenizer, entry.as_object());
}

void check_all(const fs::path& base) {
  for (const auto& entry : fs::directory_iterator(base)) {
    if (fs::exists(entry.path() / "cases.json")) check_folder(entry.path());
  }
}

TEST(TokenizerCases, OwnFoldersAreExact) {
  check_all(fs::path(SLUICE_TEST_DATA) / "tokenizers");
}

TEST(TokenizerCases, NamedFoldersAreExact) {
  const char* base = std::getenv("SLUICE_TOKENIZER_CASES");
  if (base == nullptr) GTEST_SKIP() << "SLUICE_TOKENIZER_CASES names no folder";
  check_all(base);
}

}  // namespace
}  // namespace sluice::tokenizer
