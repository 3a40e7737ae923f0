#include "base/system/memory.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

// Of mimalloc; null in programs without it.
extern "C" void mi_collect(bool force) __attribute__((weak));

namespace sluice {

namespace {

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max": no limit
  return value;
}

// The value after a name, in a file of lines "name value ..."; a name may end with a colon.
int64_t read_field(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  int64_t value = 0;
  for (std::string name, rest; file >> name >> value; std::getline(file, rest))
    if (name == wanted) return value;
  return 0;
}

struct CgroupFiles {
  std::string folder;  // below the root of all cgroups
  const char* limit;
  const char* usage;
  const char* cached;  // of memory.stat: pages of files, which are given up under pressure
};
constexpr const char* kV1Limit = "memory.limit_in_bytes";

void narrow(MemoryRoom& room, int64_t bytes, std::string limit) {
  if (bytes < room.bytes) room = {std::max<int64_t>(bytes, 0), std::move(limit)};
}

// A cgroup is bound by its own limit and by those of the ones around it. In a container the path may be one of the host,
// of which the root alone is seen.
void narrow_by_cgroup(MemoryRoom& room, int64_t mapped, const CgroupFiles& files, std::string path) {
  for (bool last = false; !last;) {
    last = path.empty() || path == "/";
    const std::string folder = files.folder + (last ? "" : path);
    const auto limit = read_number(folder + "/" + files.limit),
               used = read_number(folder + "/" + files.usage);
    const int64_t cached = read_field(folder + "/memory.stat", files.cached);
    if (limit && used)
      narrow(room, *limit - (*used - std::min(cached, *used)) - mapped,
             fmt::format("the memory limit of its cgroup is {}", memory_text(*limit)));
    if (!last) path.resize(path.find_last_of('/'));
  }
}

void narrow_by_cgroups(MemoryRoom& room, int64_t mapped, const MemorySources& sources) {
  std::ifstream file(sources.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* mount : {"", "/unified"})
        narrow_by_cgroup(room, mapped, {sources.cgroups + mount, "memory.max", "memory.current", "file"},
                         path);
    } else if (controllers.find(",memory,") != std::string::npos) {
      narrow_by_cgroup(room, mapped,
                       {sources.cgroups + "/memory", kV1Limit, "memory.usage_in_bytes", "total_cache"}, path);
    }
  }
}

}  // namespace

std::string memory_text(int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mebibytes = static_cast<double>(bytes) / kMiB;
  return mebibytes < 1000 ? fmt::format("{:.0f} MiB", mebibytes)
                          : fmt::format("{:.1f} GiB", mebibytes / 1024);
}

MemoryRoom memory_room(int64_t mapped, const MemorySources& sources) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  int64_t available = read_field(sources.proc + "/meminfo", "MemAvailable:") * 1024;
  if (available == 0) available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * page;
  MemoryRoom room{std::max<int64_t>(available - mapped, 0),
                  fmt::format("the machine has {} available", memory_text(available))};
  narrow_by_cgroups(room, mapped, sources);
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    const auto limit = static_cast<int64_t>(std::min<rlim_t>(space.rlim_cur, INT64_MAX));
    const int64_t used = read_number(sources.proc + "/self/statm").value_or(0) * page;
    narrow(room, limit - used, fmt::format("the limit on its address space is {}", memory_text(limit)));
  }
  return room;
}

Error out_of_memory() {
  return {ErrorCode::Unavailable, "there is not enough memory for this request"};
}

int64_t unused_memory() {
  return static_cast<int64_t>(mallinfo2().fordblks);
}

void return_unused_memory() {
  malloc_trim(0);
  return_thread_memory();
}

void return_thread_memory() {
  if (mi_collect != nullptr) mi_collect(true);
}

}  // namespace sluice
