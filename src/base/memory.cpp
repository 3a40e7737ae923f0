#include "base/memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace sluice {

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string name, unit; file >> name >> kibibytes; std::getline(file, unit))
    if (name == "MemAvailable:") return kibibytes * 1024;
  return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice
