// Command line and environment → options of the chosen command.
#pragma once

#include <string>

#include "cli/command.h"

namespace sluice::cli {

// Parses, runs the chosen command and returns its exit code. Usage errors are printed with the nearest known
// flag.
int parse_and_run(int argc, char** argv, CommandList& commands);

}  // namespace sluice::cli
