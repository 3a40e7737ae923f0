#include "cli/commands/version.h"

#include <fmt/format.h>

#include "base/platform.h"
#include "base/version.h"
#include "runtime/device.h"

namespace sluice::cli {

std::string version_text() {
  const BuildInfo& build = build_info();
  std::string text = fmt::format("sluice {}\n", build.version);
  if (!build.commit.empty())
    text += fmt::format("commit {}{}\n", build.commit, build.dirty ? " (changed)" : "");
  text += fmt::format("compiler {}\narchitecture {}\n", build.compiler, kArchitecture);
  for (const std::string& device : runtime::describe_devices()) text += "device " + device + "\n";
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace sluice::cli
