#include "cli/parser.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"
#include "cli/command.h"

namespace sluice::cli {
namespace {

enum class Colour { Red, Green };

// A verb that notes what it was told.
class Note : public Command {
 public:
  std::string_view name() const override { return "note"; }
  std::string_view summary() const override { return "notes its options"; }
  void declare(OptionSet& options) override {
    options.add(count, "note-count", "a number").short_name('k').within(0, 10);
    options.add(share, "note-share", "a number").within(0, 1);
    options.add(text, "note-text", "a text");
    options.add(list, "note-list", "texts");
    options.add(loud, "note-loud", "a switch");
    options.add_choice<Colour>(colour, "note-colour", "a choice",
                               {{"red", Colour::Red}, {"green", Colour::Green}});
  }
  int run() override {
    ran = true;
    log_debug("a detail");
    return kSuccess;
  }

  int count = 3;
  double share = 0.5;
  std::string text;
  std::vector<std::string> list;
  bool loud = false, ran = false;
  Colour colour = Colour::Red;
};

struct Outcome {
  int code;
  std::string output, errors;
};

class Parser : public testing::Test {
 protected:
  Outcome parse(std::vector<std::string> words) {
    words.insert(words.begin(), "sluice");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    CommandList commands;
    commands.push_back(std::make_unique<Note>());
    note_ = static_cast<Note*>(commands.back().get());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = parse_and_run(static_cast<int>(arguments.size()), arguments.data(), commands);
    Outcome outcome{code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
    seen_ = *note_;
    return outcome;
  }
  Note* note_ = nullptr;
  Note seen_;
};

TEST_F(Parser, ReadsEveryKindOfOption) {
  EXPECT_EQ(parse({"note", "-k", "4", "--note-text", "a b", "--note-list=x", "--note-list", "y",
                   "--note-loud", "--note-colour", "green"})
                .code,
            kSuccess);
  EXPECT_TRUE(seen_.ran);
  EXPECT_EQ(seen_.count, 4);
  EXPECT_EQ(seen_.text, "a b");
  EXPECT_EQ(seen_.list, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(seen_.loud);
  EXPECT_EQ(seen_.colour, Colour::Green);
}

TEST_F(Parser, TakesUnderscoresInFlagsAsDashes) {
  EXPECT_EQ(parse({"note", "--note_count", "5", "--note_text=under_score"}).code, kSuccess);
  EXPECT_EQ(seen_.count, 5);
  EXPECT_EQ(seen_.text, "under_score");
}

TEST_F(Parser, LetsFlagsWinOverTheEnvironment) {
  setenv("SLUICE_NOTE_COUNT", "7", 1);
  EXPECT_EQ(parse({"note"}).code, kSuccess);
  EXPECT_EQ(seen_.count, 7);
  EXPECT_EQ(parse({"note", "--note-count", "8"}).code, kSuccess);
  EXPECT_EQ(seen_.count, 8);
  setenv("SLUICE_NOTE_COUNT", "70", 1);
  const Outcome wrong = parse({"note"});
  EXPECT_EQ(wrong.code, kUsage);
  EXPECT_NE(wrong.errors.find("(from SLUICE_NOTE_COUNT)"), std::string::npos) << wrong.errors;
  EXPECT_EQ(parse({"note", "-k", "90"}).errors.find("from SLUICE"), std::string::npos);
  unsetenv("SLUICE_NOTE_COUNT");
}

TEST_F(Parser, RefusesWrongValues) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"note", "-k", "11"}, {"note", "-k", "x"}, {"note", "-k"}, {"note", "--note-colour", "blue"}}) {
    const Outcome outcome = parse(words);
    EXPECT_EQ(outcome.code, kUsage) << words.back();
    EXPECT_TRUE(outcome.errors.starts_with("sluice: ")) << outcome.errors;
    EXPECT_FALSE(seen_.ran);
  }
  EXPECT_NE(parse({"note", "-k", "11"}).errors.find("'11' is not a whole number from 0 to 10"),
            std::string::npos);
  EXPECT_NE(parse({"note", "-k", "1.5"}).errors.find("'1.5' is not a whole number"), std::string::npos);
  EXPECT_NE(parse({"note", "--note-share", "2"}).errors.find("'2' is not a number from 0 to 1"),
            std::string::npos);
  EXPECT_EQ(parse({"note", "--note-share", "nan"}).code, kUsage);
}

TEST_F(Parser, SuggestsTheNearestWord) {
  EXPECT_NE(parse({"note", "--note-cuont", "3"}).errors.find("did you mean '--note-count'?"),
            std::string::npos);
  EXPECT_NE(parse({"notes"}).errors.find("did you mean 'note'?"), std::string::npos);
  const Outcome far = parse({"note", "--zebra"});
  EXPECT_EQ(far.code, kUsage);
  EXPECT_EQ(far.errors.find("did you mean"), std::string::npos);
}

TEST_F(Parser, ShowsHelpAndVersion) {
  const Outcome help = parse({"note", "--help"});
  EXPECT_EQ(help.code, kSuccess);
  EXPECT_NE(help.output.find("SLUICE_NOTE_COUNT"), std::string::npos);
  const Outcome version = parse({"--version"});
  EXPECT_EQ(version.code, kSuccess);
  EXPECT_TRUE(version.output.starts_with("sluice "));
  EXPECT_NE(version.output.find("device ref"), std::string::npos);
  EXPECT_EQ(parse({}).code, kSuccess);
}

TEST_F(Parser, LogsMoreWithVerboseOnEveryVerb) {
  EXPECT_EQ(parse({"note"}).errors, "");
  for (const char* flag : {"--verbose", "-v", "--log-verbose"}) {
    const Outcome outcome = parse({"note", flag});
    set_log_level(LogLevel::Info);
    EXPECT_EQ(outcome.code, kSuccess);
    EXPECT_NE(outcome.errors.find("debug a detail"), std::string::npos) << flag << ": " << outcome.errors;
  }
  EXPECT_NE(parse({"note", "--help"}).output.find("--verbose"), std::string::npos);
}

TEST(NearestWord, IsTheOneWithTheFewestEdits) {
  const std::vector<std::string> known{"--max-tokens", "--max-seqs", "--threads"};
  EXPECT_EQ(nearest_word("--max-tokns", known), "--max-tokens");
  EXPECT_EQ(nearest_word("--max-seq", known), "--max-seqs");
  EXPECT_EQ(nearest_word("--qqq", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word("--threads", {}), "");
}

TEST(ExitCodes, FollowTheKindOfError) {
  EXPECT_EQ(exit_code({ErrorCode::InvalidArgument, ""}), 64);
  EXPECT_EQ(exit_code({ErrorCode::Unavailable, ""}), 69);
  EXPECT_EQ(exit_code({ErrorCode::Internal, ""}), 70);
  for (const ErrorCode code : {ErrorCode::NotFound, ErrorCode::Corrupt, ErrorCode::Io})
    EXPECT_EQ(exit_code({code, ""}), 74);
  for (const ErrorCode code : {ErrorCode::Unsupported, ErrorCode::LimitExceeded})
    EXPECT_EQ(exit_code({code, ""}), 78);
}

}  // namespace
}  // namespace sluice::cli
