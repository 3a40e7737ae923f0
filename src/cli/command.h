// A verb of the program: its options, and what it does with them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/result.h"

namespace sluice::cli {

// Exit codes, as in sysexits.h.
enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,        // the command worked and its answer is "no"
  kUsage = 64,         // wrong flags or arguments
  kUnavailable = 69,   // a device, model, port or network is not there
  kInternal = 70,      // our own fault
  kIo = 74,            // a file cannot be read or written, or is damaged
  kConfig = 78,        // well formed, but not something this build can do
  kInterrupted = 130,  // Ctrl-C ended it early
};

int exit_code(const Error& error);
// Prints "sluice: MESSAGE" on stderr and gives the exit code for it.
int report(const Error& error);

// Each verb derives from this; one object lives for the run of the program.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  // one line
  virtual std::string_view examples() const { return ""; }
  virtual void declare(OptionSet& options) = 0;
  virtual int run() = 0;  // an exit code
};

// What every verb takes besides its own.
class CommonOptions {
 public:
  void declare(OptionSet& options);
  void apply() const;

 private:
  bool verbose_ = false;
};

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_chat();
std::unique_ptr<Command> make_serve();
std::unique_ptr<Command> make_route();
std::unique_ptr<Command> make_healthcheck();
std::unique_ptr<Command> make_generate();
std::unique_ptr<Command> make_render();
std::unique_ptr<Command> make_describe();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_bench_serve();
std::unique_ptr<Command> make_bench_schemes();
std::unique_ptr<Command> make_bench_sweep();
std::unique_ptr<Command> make_bench_compress();
std::unique_ptr<Command> make_bench_speculate();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_simulate();
std::unique_ptr<Command> make_perplexity();
std::unique_ptr<Command> make_compare();
std::unique_ptr<Command> make_quantize();
std::unique_ptr<Command> make_compress();
std::unique_ptr<Command> make_check();
std::unique_ptr<Command> make_list();
std::unique_ptr<Command> make_completion();
std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_detokenize();

using CommandList = std::vector<std::unique_ptr<Command>>;
CommandList all_commands();

}  // namespace sluice::cli
