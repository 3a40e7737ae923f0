#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lab/load/drive.h"
#include "lab/load/load_report.h"
#include "lab/load/stream_parser.h"
#include "lab/load/workload.h"
#include "lab/sweep.h"
#include "tests/lab/scripted_server.h"

namespace sluice::lab {
namespace {

LengthLaw law(std::string_view text) {
  return *LengthLaw::parse(text, "input-len");
}

TEST(LengthLaw, ReadsItsThreeForms) {
  EXPECT_EQ(law("128").kind, LengthLaw::Kind::Fixed);
  EXPECT_EQ(law("16-128").second, 128);
  EXPECT_EQ(law("lognormal:256:0.5").first, 256);
  for (const char* bad : {"", "0", "128-16", "lognormal:5", "x", "12x", "1e99"})
    EXPECT_FALSE(LengthLaw::parse(bad, "input-len").ok()) << bad;
}

TEST(Workload, LengthsHaveTheMeanThatWasAskedFor) {
  WorkloadOptions options;
  options.input = law("lognormal:200:0.8");
  options.output = law("10-30");
  Workload workload(options);
  double input = 0, output = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const LoadRequest request = workload.next();
    input += double(request.prompt.size());
    output += request.output;
    ASSERT_GE(request.output, 10);
    ASSERT_LE(request.output, 30);
  }
  EXPECT_NEAR(input / kCount, 200, 6);
  EXPECT_NEAR(output / kCount, 20, 0.3);
}

TEST(Workload, GapsHaveTheRateAndTheBurstinessOfTheirDistribution) {
  for (const double burstiness : {1.0, 0.25, 4.0}) {
    WorkloadOptions options;
    options.rate = 10;
    options.burstiness = burstiness;
    Workload workload(options);
    double last = 0, sum = 0, squares = 0;
    constexpr int kCount = 40000;
    workload.next();
    for (int i = 0; i < kCount; ++i) {
      const double at = workload.next().at, gap = at - last;
      last = at;
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / kCount, variance = squares / kCount - mean * mean;
    EXPECT_NEAR(mean, 0.1, 0.004) << burstiness;
    EXPECT_NEAR(variance / (mean * mean), 1 / burstiness, 0.12 / burstiness) << burstiness;
  }
}

TEST(Workload, GroupsSharePrefixesAndTurnsTheirPrompts) {
  WorkloadOptions options;
  options.input = law("5-9");
  options.prefix = 20;
  options.prefix_groups = 2;
  options.turns = 3;
  Workload workload(options);
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < 9; ++i) prompts.push_back(workload.next().prompt);
  const auto begins = [](const std::vector<Token>& whole, const std::vector<Token>& part) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
  };
  EXPECT_TRUE(begins(prompts[1], prompts[0]));
  EXPECT_TRUE(begins(prompts[2], prompts[1]));
  const std::vector<Token> prefix(prompts[0].begin(), prompts[0].begin() + 20);
  EXPECT_TRUE(begins(prompts[6], prefix));
  EXPECT_FALSE(begins(prompts[3], prefix));
  EXPECT_FALSE(begins(prompts[6], prompts[0]));
}

TEST(Workload, ConversationsGoOnTogetherWhereTurnsLieApart) {
  WorkloadOptions options;
  options.turns = 2;
  options.turn_gap = 3;
  options.input = law("5");
  Workload workload(options);
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < 9; ++i) prompts.push_back(workload.next().prompt);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(prompts[i].size(), 5u);
    ASSERT_EQ(prompts[i + 3].size(), 10u);
    EXPECT_TRUE(std::equal(prompts[i].begin(), prompts[i].end(), prompts[i + 3].begin()));
  }
  EXPECT_EQ(prompts[6].size(), 5u);
  EXPECT_NE(prompts[6], prompts[0]);
}

TEST(Workload, GroupsAreAsSkewedAsAskedFor) {
  WorkloadOptions options;
  options.input = law("1");
  options.prefix = 8;
  options.prefix_groups = 4;
  options.prefix_skew = 1;
  Workload workload(options);
  std::map<std::vector<Token>, int> sizes;
  for (int i = 0; i < 2500; ++i) {
    std::vector<Token> prompt = workload.next().prompt;
    prompt.resize(8);
    ++sizes[prompt];
  }
  std::vector<int> counts;
  for (const auto& [prefix, count] : sizes) counts.push_back(count);
  std::sort(counts.begin(), counts.end());
  ASSERT_EQ(counts.size(), 4u);
  EXPECT_NEAR(counts[3], 1200, 100);  // 1 of 1 + 1/2 + 1/3 + 1/4
  EXPECT_NEAR(counts[0], 300, 60);
}

TEST(Dispatcher, KeepsToItsConcurrencyAndItsCount) {
  WorkloadOptions options;
  options.requests = 3;
  options.concurrency = 2;
  Workload workload(options);
  Dispatcher dispatcher(workload);
  EXPECT_TRUE(dispatcher.take(0));
  EXPECT_TRUE(dispatcher.take(0));
  EXPECT_FALSE(dispatcher.take(0));
  EXPECT_TRUE(std::isinf(dispatcher.next_time(0)));
  dispatcher.ended();
  EXPECT_TRUE(dispatcher.take(1));
  EXPECT_TRUE(dispatcher.exhausted(1));
  EXPECT_FALSE(dispatcher.done(1));
  dispatcher.ended();
  dispatcher.ended();
  EXPECT_TRUE(dispatcher.done(1));
}

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text) {
    path_ = (std::filesystem::temp_directory_path() / ("sluice_load_" + std::to_string(getpid()) + "_" +
                                                       std::to_string(reinterpret_cast<uintptr_t>(this))))
                .string();
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(RequestsFile, ReadsMooncakesAndAzuresTracesAndConversations) {
  const TemporaryFile mooncake(
      "{\"timestamp\": 2000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [7, 8]}\n"
      "{\"timestamp\": 3500, \"input_length\": 512, \"output_length\": 6, \"hash_ids\": [7]}\n");
  auto rows = read_requests_file(mooncake.path());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_DOUBLE_EQ((*rows)[1].at, 1.5);
  WorkloadOptions options;
  options.listed = *rows;
  options.listed_times = true;
  Workload workload(options);
  const LoadRequest first = workload.next(), second = workload.next();
  ASSERT_EQ(first.prompt.size(), 600u);
  EXPECT_TRUE(
      std::equal(second.prompt.begin(), second.prompt.end(), first.prompt.begin()));  // block 7 is shared
  EXPECT_DOUBLE_EQ(second.at, 1.5);

  const TemporaryFile azure(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5000000,374,44\n"
      "2023-11-16 18:17:04.0000000,396,109\n");
  rows = read_requests_file(azure.path());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ((*rows)[1].input, 396);
  EXPECT_NEAR((*rows)[1].at, 0.5, 1e-6);

  const TemporaryFile talks(
      "[{\"conversations\": [{\"from\": \"human\", \"value\": \"Hello there\"}, {\"from\": \"gpt\", "
      "\"value\": "
      "\"Hi!\"}]}, {\"conversations\": []}]");
  rows = read_requests_file(talks.path());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ((*rows)[0].text, "Hello there");
}

TEST(RequestsFile, ABadLineIsNamed) {
  const TemporaryFile bad(
      "{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 5}\n{\"timestamp\": 2}\n");
  const auto rows = read_requests_file(bad.path());
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.error().message.find("line 2"), std::string::npos);
}

TEST(StreamParser, CountsPiecesHoweverTheBytesAreCut) {
  const std::string body =
      "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"\"}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto chunk = [](const std::string& text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); };
  const std::string all = head + chunk(body.substr(0, 31)) + chunk(body.substr(31)) + "0\r\n\r\n";
  for (const size_t step : {size_t{1}, size_t{3}, size_t{64}, all.size()}) {
    StreamParser parser;
    int pieces = 0;
    bool done = false;
    for (size_t at = 0; at < all.size() && !done; at += step) {
      const StreamParser::Found found = parser.feed(std::string_view(all).substr(at, step));
      pieces += found.pieces;
      done = found.done;
    }
    EXPECT_TRUE(done);
    EXPECT_EQ(parser.error(), "");
    EXPECT_EQ(pieces, 2);
    EXPECT_EQ(parser.prompt_tokens(), 7);
    EXPECT_EQ(parser.output_tokens(), 2);
  }
}

TEST(StreamParser, RefusalsAndCutsAreErrors) {
  StreamParser refused;
  EXPECT_TRUE(refused.feed("HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nfull!").done);
  EXPECT_NE(refused.error().find("503: full!"), std::string::npos);
  StreamParser cut;
  cut.feed("HTTP/1.1 200 OK\r\n\r\ndata: {\"text\":\"x\"}\n");
  cut.close();
  EXPECT_NE(cut.error(), "");
  StreamParser nonsense;
  nonsense.feed("SSH-2.0-OpenSSH\r\n\r\n");
  EXPECT_NE(nonsense.error(), "");
}

LoadResult two_requests() {
  LoadResult result;
  result.duration = 2;
  result.records.push_back(
      {.start = 0, .first = 0.1F, .end = 1.1, .input = 10, .output = 11, .arrivals = {0.1F, 0.6F, 1.1F}});
  result.records.push_back(
      {.start = 0, .first = 0.5, .end = 2, .input = 20, .output = 2, .arrivals = {0.5F, 2.0F}});
  result.records.push_back({.start = 1, .first = 1, .end = 1, .input = 5, .error = "refused"});
  result.limits = *parse_service_limits("ttft:200ms,tpot:0.15s");
  return result;
}

TEST(LoadReport, HasTheKeysAndTheFiguresOfVllm) {
  const json::object report = load_json(two_requests());
  EXPECT_EQ(report.at("completed").to_number<int>(), 2);
  EXPECT_EQ(report.at("failed").to_number<int>(), 1);
  EXPECT_DOUBLE_EQ(report.at("output_throughput").to_number<double>(), 6.5);
  EXPECT_DOUBLE_EQ(report.at("request_goodput").to_number<double>(), 0.5);
  EXPECT_NEAR(report.at("mean_ttft_ms").to_number<double>(), 300, 0.01);
  EXPECT_NEAR(report.at("p99_tpot_ms").to_number<double>(), 100 + 0.99 * 1400, 0.1);
  for (const char* key : {"duration",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "total_token_throughput",
                          "median_itl_ms",
                          "std_e2el_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "start_times",
                          "errors",
                          "date",
                          "backend",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "max_concurrency"})
    EXPECT_TRUE(report.contains(key)) << key;
  const std::string text = load_text(report);
  EXPECT_NE(text.find("Successful requests:                     2         \n"), std::string::npos) << text;
  EXPECT_NE(text.find("Request goodput (req/s):"), std::string::npos);
}

TEST(LoadReport, SeveralResultsShareOnePage) {
  json::object first = load_json(two_requests()), second = first;
  first["label"] = "ours";
  second["label"] = "<theirs>";
  const std::string page = load_html({first, second});
  EXPECT_NE(page.find("&lt;theirs&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<theirs>"), std::string::npos);
  EXPECT_NE(page.find("Time to first token"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
}

TEST(ServiceLimits, RefusesWhatItCannotRead) {
  EXPECT_DOUBLE_EQ(*parse_service_limits("ttft:200 tpot:30")->tpot, 0.03);
  for (const char* bad : {"ttft", "ttft:x", "ttft:-1ms", "speed:3ms", "ttft:3h"})
    EXPECT_FALSE(parse_service_limits(bad).ok()) << bad;
}

TEST(LoadTarget, ReadsAddresses) {
  EXPECT_EQ(parse_load_target("http://localhost:8080")->base, "/v1");
  EXPECT_EQ(parse_load_target("http://h/api/v1/")->base, "/api/v1");
  EXPECT_EQ(parse_load_target("http://[::1]:80")->host, "::1");
  EXPECT_FALSE(parse_load_target("https://h").ok());
}

TEST(DriveServer, SeesTheTimesOfAServerThatKeepsToAScript) {
  const Script script{.ttft = 0.2, .gap = 0.05, .tokens = 12};
  ScriptedServer server(script);
  const LoadTarget target{
      .host = "127.0.0.1", .port = std::to_string(server.port()), .base = "/v1", .model = "scripted"};
  WorkloadOptions options;
  options.requests = 24;
  options.concurrency = 12;
  options.warmups = 4;
  Workload workload(options);
  const Result<LoadResult> result = drive_server(target, workload, [](const LoadProgress&) {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const json::object report = load_json(*result);
  const auto number = [&](const char* key) { return report.at(key).to_number<double>(); };
  EXPECT_EQ(server.connected_at_first(), 12);
  EXPECT_EQ(number("completed"), 20);
  EXPECT_EQ(number("total_output_tokens"), 20 * 12);
  EXPECT_EQ(number("total_input_tokens"), 20 * 8);
  // Never early; late only by what else the machine does.
  EXPECT_GE(number("p50_ttft_ms"), 199);
  EXPECT_LT(number("p50_ttft_ms"), 400);
  EXPECT_GE(number("p50_tpot_ms"), 45);
  EXPECT_LT(number("p50_tpot_ms"), 100);
}

TEST(DriveServer, AServerThatIsNotThereFailsItsRequestsAlone) {
  const LoadTarget target{.host = "127.0.0.1", .port = "1", .base = "/v1", .model = "none"};
  WorkloadOptions options;
  options.requests = 3;
  Workload workload(options);
  const Result<LoadResult> result = drive_server(target, workload, [](const LoadProgress&) {});
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 3u);
  EXPECT_NE(result->records[0].error, "");
}

TEST(Sweep, TheFrontierHoldsWhatNothingBeats) {
  std::vector<SweepPoint> points(4);
  points[0] = {.settings = {"max-seqs=1"}, .tokens_per_second = 10, .tpot_p50 = 5};
  points[1] = {.settings = {"max-seqs=8"}, .tokens_per_second = 40, .tpot_p50 = 9};
  points[2] = {.settings = {"max-seqs=9"}, .tokens_per_second = 30, .tpot_p50 = 9};
  points[3] = {.settings = {"max-seqs=32"}, .tokens_per_second = 80, .tpot_p50 = 30, .within_limits = false};
  EXPECT_EQ(frontier(points), (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(best_point(points), 1u);
  EXPECT_EQ(points[1].flags(), "--max-seqs 8");
  EXPECT_FALSE(SweepAxis::parse("max-seqs=").ok());
  EXPECT_EQ(SweepAxis::parse("threads=1,2")->values.size(), 2u);
}

}  // namespace
}  // namespace sluice::lab
