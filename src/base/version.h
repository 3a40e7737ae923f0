// What this build was made from, for --version and reports.
#pragma once

#include <string_view>

namespace sluice {

struct BuildInfo {
  std::string_view version;   // "0.1.0"
  std::string_view commit;    // twelve digits; empty where the sources were not in a repository
  bool dirty = false;         // the sources differed from the commit
  std::string_view compiler;  // "gcc 12.2.0"
};

const BuildInfo& build_info();

}  // namespace sluice
