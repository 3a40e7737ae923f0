#include <exception>

#include "cli/command.h"
#include "cli/parser.h"
#include "formats/mapped_file.h"

int main(int argc, char** argv) {
  using namespace sluice;
  formats::install_fault_handler();
  try {
    cli::CommandList commands = cli::all_commands();
    return cli::parse_and_run(argc, argv, commands);
  } catch (const std::exception& problem) {
    return cli::report({ErrorCode::Internal, std::string("internal error: ") + problem.what()});
  }
}
