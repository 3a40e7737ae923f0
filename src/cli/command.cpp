#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "base/system/terminal.h"

namespace sluice::cli {

int exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::InvalidArgument:
      return kUsage;
    case ErrorCode::Unavailable:
      return kUnavailable;
    case ErrorCode::NotFound:
    case ErrorCode::Corrupt:
    case ErrorCode::Io:
      return kIo;
    case ErrorCode::Unsupported:
    case ErrorCode::LimitExceeded:
      return kConfig;
    case ErrorCode::Numerical:
    case ErrorCode::Internal:
      break;
  }
  return kInternal;
}

int report(const Error& error) {
  fmt::print(stderr, "sluice: {}\n", shown_on(STDERR_FILENO, error.message));
  return exit_code(error);
}

void CommonOptions::declare(OptionSet& options) {
  options.add(verbose_, "verbose", "log more on stderr: the device, and on a GPU which GEMM runs when")
      .short_name('v')
      .also("log-verbose");
}

void CommonOptions::apply() const {
  if (verbose_) set_log_level(LogLevel::Debug);
}

CommandList all_commands() {
  CommandList list;
  for (auto make :
       {make_run,      make_chat,           make_serve,           make_route,         make_healthcheck,
        make_generate, make_bench,          make_bench_serve,     make_bench_schemes, make_bench_sweep,
        make_plan,     make_simulate,       make_perplexity,      make_compare,       make_quantize,
        make_compress, make_bench_compress, make_bench_speculate, make_tokenize,      make_detokenize,
        make_render,   make_check,          make_describe,        make_list,          make_completion})
    list.push_back(make());
  return list;
}

}  // namespace sluice::cli
