#pragma once

#include <string>

namespace sluice::cli {

// Version, commit, compiler, and the back-ends and instruction sets found on this machine; several lines.
std::string version_text();

}  // namespace sluice::cli
