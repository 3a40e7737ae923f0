#include "compress/text_units.h"

#include <gtest/gtest.h>

namespace sluice::compress {
namespace {

std::vector<std::string> sentences(std::string_view text) {
  const TextUnits units = split_text(text);
  std::vector<std::string> out;
  for (const Sentence& s : units.sentences) {
    const size_t begin = units.words[s.first].text_begin;
    out.emplace_back(text.substr(begin, units.words[s.end - 1].bytes.end - begin));
  }
  return out;
}

// The protected words.
std::string kept(std::string_view text, std::vector<ByteRange> marked = {}) {
  std::string out;
  for (const Word& word : split_text(text, marked).words) {
    if (word.protection == Protection::None) continue;
    if (!out.empty()) out += ' ';
    out += text.substr(word.text_begin, word.text().size());
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(SplitText, FindsSentences) {
  EXPECT_EQ(sentences("It rained. We left! Why? \"No.\" Nobody knew."),
            (Texts{"It rained.", "We left!", "Why?", "\"No.\"", "Nobody knew."}));
  EXPECT_EQ(sentences("Mr. Hale met J. Smith at 3.14 p. m. today. He left."),
            (Texts{"Mr. Hale met J. Smith at 3.14 p. m. today.", "He left."}));
  EXPECT_EQ(sentences("a heading\n\nwrapped prose that\ngoes on here\n- item one\n- item two"),
            (Texts{"a heading", "wrapped prose that\ngoes on here", "- item one", "- item two"}));
  EXPECT_EQ(sentences("今日は雨です。明日は晴れ。"), (Texts{"今日は雨です。", "明日は晴れ。"}));
  EXPECT_EQ(sentences(""), Texts{});
}

TEST(SplitText, WordsCoverTheTextWithoutGaps) {
  for (const std::string_view text :
       {"  two  words \n", "漢字とkana", "", " \n ", "x", "caf\u00e9\u00a0bar"}) {
    size_t at = 0;
    const TextUnits units = split_text(text);
    for (const Word& word : units.words) {
      EXPECT_EQ(word.bytes.begin, at);
      at = word.bytes.end;
    }
    EXPECT_EQ(at, text.size());
    size_t first = 0;
    for (const Sentence& s : units.sentences) {
      EXPECT_EQ(s.first, first);
      first = s.end;
    }
    EXPECT_EQ(first, units.words.size());
  }
}

TEST(SplitText, ProtectsNumbersNamesCodeAndQuotes) {
  EXPECT_EQ(kept("The tower opened in 1889 and cost 7.8 million."), "1889 7.8");
  EXPECT_EQ(kept("Then the Danube rose. Danube water is cold. Water is wet."), "Danube Danube");
  EXPECT_EQ(kept("NASA said so."), "NASA");
  EXPECT_EQ(kept("call read_file() or see docs/api.md, or camelCase, or a@b.org"),
            "read_file() docs/api.md, camelCase, a@b.org");
  EXPECT_EQ(kept("she said \"we go now\" and went"), "\"we go now\"");
  EXPECT_EQ(kept("use `a b` here\n```\nx = 1;\n\ny\n```\nend of it"), "`a b` ``` x = 1; y ```");
  EXPECT_EQ(kept("plain words here", {{6, 11}}), "words");
}

TEST(QuestionOf, IsTheEndOfALongText) {
  const std::string body(500, 'x');
  const auto question = [](const std::string& text) {
    const ByteRange range = question_of(text);
    return text.substr(range.begin, range.size());
  };
  EXPECT_EQ(question(body + "\n\nWhat did the tower cost to build?"), "\nWhat did the tower cost to build?");
  EXPECT_EQ(question(body + "\nQuestion: What did it cost?\nAnswer:"),
            "\nQuestion: What did it cost?\nAnswer:");
  EXPECT_EQ(question(body + " ended. What did the tower cost to build?"),
            " What did the tower cost to build?");
  EXPECT_EQ(question(body), "");
  EXPECT_EQ(question(""), "");
}

}  // namespace
}  // namespace sluice::compress
