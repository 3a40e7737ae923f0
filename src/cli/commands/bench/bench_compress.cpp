// sluice bench compress: prompts made shorter beside plain truncation and random dropping.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "cli/command.h"
#include "cli/open_session.h"
#include "cli/terminal/input.h"
#include "lab/compress_bench.h"
#include "lab/html/page.h"
#include "unicode/utf8_stream.h"

namespace sluice::cli {

namespace {

Result<std::vector<double>> parse_ratios(const std::string& text) {
  std::vector<double> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    double value = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + end, value);
    if (read.ec != std::errc() || read.ptr != text.data() + end || !(value > 0 && value <= 1))
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--ratios {}: '{}' must be a number above 0 and at most 1", text,
                               text.substr(at, end - at))};
    out.push_back(value);
    at = end + 1;
  }
  return out;
}

Result<std::vector<lab::ShorterBy>> parse_ways(const std::string& text) {
  std::vector<lab::ShorterBy> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::optional<lab::ShorterBy> way = lab::shorter_by(text.substr(at, end - at));
    if (!way)
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("--ways {}: '{}' must be tokens, prefill, summary, extract, truncation or random", text,
                      text.substr(at, end - at))};
    out.push_back(*way);
    at = end + 1;
  }
  return out;
}

class BenchCompressCommand : public Command {
 public:
  std::string_view name() const override { return "bench compress"; }
  std::string_view summary() const override {
    return "measure answers and time to first token of prompts made shorter";
  }
  std::string_view examples() const override {
    return "sluice bench compress --html compress.html\n"
           "sluice bench compress -m large.gguf --compressor small.gguf --tokens 8000 --ratios 0.2,0.5";
  }
  void declare(OptionSet& options) override {
    options.add(session_.model, "model", "file, folder or name; the default model where left out")
        .short_name('m')
        .shown_as("MODEL");
    options.add(compressor_, "compressor", "small model that scores the texts; --model where left out")
        .shown_as("MODEL");
    options.add(workload_.tokens, "tokens", "of a text, about").within(100, 1 << 20);
    options.add(workload_.cases, "cases", "needles, and as many questions").within(1, 1000);
    options.add(ratios_, "ratios", "shares of the tokens that stay").shown_as("LIST");
    options.add(file_, "file", "text around the facts; invented where left out")
        .short_name('f')
        .shown_as("FILE");
    options.add(ways_, "ways", "of tokens, prefill, summary, extract, truncation and random")
        .shown_as("LIST");
    options.add(seed_, "seed", "of the texts").within(0, 1e9);
    options.add(json_, "output", "write the figures as JSON").shown_as("FILE");
    options.add(html_, "html", "write them as a page with curves").shown_as("FILE");
    session_.engine.declare(options);
  }

  int run() override {
    Result<std::vector<double>> ratios = parse_ratios(ratios_);
    if (!ratios) return report(ratios.error());
    Result<std::vector<lab::ShorterBy>> ways = parse_ways(ways_);
    if (!ways) return report(ways.error());
    workload_.seed = static_cast<uint64_t>(seed_);
    if (!file_.empty()) {
      Result<std::string> filler = read_input(file_);
      if (!filler) return report(filler.error());
      workload_.filler = unicode::to_valid_utf8(*filler);
    }
    Result<std::unique_ptr<llm::Session>> session = open_session(session_);
    if (!session) return report(session.error());
    std::unique_ptr<llm::Session> small;
    if (!compressor_.empty()) {
      Result<std::unique_ptr<llm::Session>> opened = open_compressor(compressor_, session_);
      if (!opened) return report(opened.error());
      small = std::move(*opened);
    }
    const compress::Model target = compress_model(**session);
    compress::ModelCompressor compressor(target, compress_model(small ? *small : **session));
    return measure({.target = target,
                    .compressor = &compressor,
                    .cases = lab::make_compress_cases(workload_),
                    .ratios = std::move(*ratios),
                    .ways = std::move(*ways)});
  }

 private:
  int measure(const lab::CompressBench& bench) const {
    const std::string text =
        fmt::format("{} needles and {} questions in texts of about {} tokens, seed {}{}", workload_.cases,
                    workload_.cases, workload_.tokens, seed_, file_.empty() ? "" : ", " + file_);
    fmt::print("{}.\n\n{}", text, lab::compress_header());
    std::fflush(stdout);
    const auto points = lab::run_compress_bench(bench, [](const lab::CompressPoint& point) {
      fmt::print("{}", lab::compress_row(point));
      std::fflush(stdout);
    });
    if (!points) return report(points.error());
    fmt::print("\n{}\n{}", lab::compress_verdict(*points), lab::compress_texts(*points));
    if (!json_.empty())
      if (Status status = lab::write_text_file(json_, write_json(lab::compress_json(*points)) + "\n");
          !status)
        return report(status.error());
    if (html_.empty()) return kSuccess;
    const Status status = lab::write_text_file(html_, lab::compress_html(*points, text));
    return status ? kSuccess : report(status.error());
  }

  llm::SessionOptions session_;
  std::string compressor_, file_, json_, html_, ratios_ = "0.25,0.5,0.75", ways_ = "tokens,truncation,random";
  lab::CompressWorkload workload_;
  int seed_ = 1;
};

}  // namespace

std::unique_ptr<Command> make_bench_compress() {
  return std::make_unique<BenchCompressCommand>();
}

}  // namespace sluice::cli
