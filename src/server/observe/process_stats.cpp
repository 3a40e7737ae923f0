#include "server/observe/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace sluice::server {

namespace {

// The fields of /proc/self/stat behind the program's name, which may hold anything: the first is field 3.
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(text.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

double boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double value = 0;
    if (word == "btime" && file >> value) return value;
  }
  return 0;
}

double number(const std::vector<std::string>& fields, size_t index) {
  return index < fields.size() ? std::strtod(fields[index].c_str(), nullptr) : 0;
}

}  // namespace

int64_t raise_file_limit() {
  constexpr rlim_t most = 1 << 30;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return static_cast<int64_t>(most);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(std::min(limit.rlim_cur, most));
}

ProcessStats process_stats() {
  ProcessStats stats;
  const std::vector<std::string> fields = stat_fields();
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = (number(fields, 11) + number(fields, 12)) / ticks;
  stats.threads = number(fields, 17);
  stats.start_time = boot_time() + number(fields, 19) / ticks;
  stats.virtual_bytes = number(fields, 20);
  stats.resident_bytes = number(fields, 21) * static_cast<double>(sysconf(_SC_PAGESIZE));
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error))
    stats.open_files += 1;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.most_files = static_cast<double>(limit.rlim_cur);
  return stats;
}

}  // namespace sluice::server
