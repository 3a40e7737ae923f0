// How exact the load generator is, and what it costs: streams of a server whose every time is known.
//   bench_load [STREAMS [TOKENS]]        1000 streams of 200 tokens, 20 a second each
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>

#include "lab/load/drive.h"
#include "tests/lab/scripted_server.h"

namespace {

// Processor seconds of this thread, which is the client's.
double thread_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int count, char** arguments) {
  using namespace sluice::lab;
  const int streams = count > 1 ? std::atoi(arguments[1]) : 1000,
            tokens = count > 2 ? std::atoi(arguments[2]) : 200;
  if (streams < 1 || tokens < 2) {
    fmt::print(stderr, "bench_load [STREAMS [TOKENS]]\n");
    return 64;
  }
  const Script script{.ttft = 2, .gap = 0.05, .tokens = tokens};
  ScriptedServer server(script);
  LoadTarget target{
      .host = "127.0.0.1", .port = std::to_string(server.port()), .base = "/v1", .model = "scripted"};
  WorkloadOptions options;
  options.requests = options.concurrency = streams;
  options.input = *LengthLaw::parse("8", "input-len");
  Workload workload(options);
  const double before = thread_seconds();
  const auto result = drive_server(target, workload, [](const LoadProgress&) {});
  if (!result) {
    fmt::print(stderr, "{}\n", result.error().message);
    return 1;
  }
  const double used = thread_seconds() - before;
  const sluice::json::object report = load_json(*result);
  const auto number = [&](const char* key) { return report.at(key).to_number<double>(); };
  fmt::print("streams {}, completed {}, failed {}\n", streams, number("completed"), number("failed"));
  for (const auto& [name, truth] :
       {std::pair("ttft", script.ttft * 1e3), std::pair("tpot", script.gap * 1e3)})
    for (const char* share : {"mean", "p50", "p99"}) {
      const double seen = number(fmt::format("{}_{}_ms", share, name).c_str());
      fmt::print("{} {} {:.2f} ms, true {:.2f} ms, {:+.2f} %\n", name, share, seen, truth,
                 (seen / truth - 1) * 100);
    }
  fmt::print("client: {:.2f} s of a core in {:.2f} s, {:.1f} %\n", used, result->duration,
             used / result->duration * 100);
  return 0;
}
