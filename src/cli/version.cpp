#include "cli/version.h"

#include <fmt/format.h>

#include "base/platform.h"
#include "runtime/device.h"

namespace sluice::cli {

std::string version_text() {
  std::string text = fmt::format("sluice 0.1.0\ncompiler {}\narchitecture {}\n", kCompiler, kArchitecture);
  for (const std::string& device : runtime::describe_devices()) text += "device " + device + "\n";
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace sluice::cli
