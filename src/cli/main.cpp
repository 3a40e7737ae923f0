#include <exception>

#include "cli/command.h"
#include "cli/parser.h"

int main(int argc, char** argv) {
  using namespace sluice;
  try {
    cli::CommandList commands = cli::all_commands();
    return cli::parse_and_run(argc, argv, commands);
  } catch (const std::exception& problem) {
    return cli::report({ErrorCode::Internal, std::string("internal error: ") + problem.what()});
  }
}
