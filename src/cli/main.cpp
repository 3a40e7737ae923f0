#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <system_error>

#include "cli/command.h"
#include "cli/parser.h"
#include "formats/mapped_file.h"

namespace sluice::cli {

namespace {

// Whoever started us may have closed a standard stream. Without one in its place the next file that is opened, a model
// or an output, would be taken for it.
void fill_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) == -1) (void)open("/dev/null", O_RDWR);
}

int run_program(int argc, char** argv) {
  try {
    CommandList commands = all_commands();
    const int code = parse_and_run(argc, argv, commands);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return report({ErrorCode::Io, "standard output cannot be written"});
  } catch (const std::system_error& problem) {
    return report({ErrorCode::Io, problem.what()});
  } catch (const std::exception& problem) {
    return report({ErrorCode::Internal, fmt::format("internal error: {}", problem.what())});
  }
}

}  // namespace

}  // namespace sluice::cli

int main(int argc, char** argv) {
  sluice::formats::install_fault_handler();
  sluice::cli::fill_standard_streams();
  return sluice::cli::run_program(argc, argv);
}
