#include "base/system/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace sluice {

namespace {

constexpr int kMostProcessors = CPU_SETSIZE;

// The first line; empty where there is none.
std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0-3,8" as numbers; what is none is left out.
std::vector<int> list_of(std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const size_t dash = std::min(part.find('-'), part.size());
    const auto first = number_of<int>(part.substr(0, dash));
    const auto last = dash < part.size() ? number_of<int>(part.substr(dash + 1)) : first;
    for (int i = first.value_or(0); first && last && i <= std::min(*last, kMostProcessors - 1); ++i)
      numbers.push_back(i);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

// Of processors that share a core the first.
std::vector<int> one_for_each_core(const std::vector<int>& processors, const CoreSources& sources) {
  std::vector<int> firsts;
  for (const int processor : processors) {
    const auto topology =
        std::filesystem::path(sources.cpus) / ("cpu" + std::to_string(processor)) / "topology";
    const std::vector<int> siblings = list_of(line_of(topology / "thread_siblings_list"));
    const bool shared = std::any_of(firsts.begin(), firsts.end(), [&](int other) {
      return std::find(siblings.begin(), siblings.end(), other) != siblings.end();
    });
    if (!shared) firsts.push_back(processor);
  }
  return firsts;
}

// The processors among `allowed` of each node that has any.
std::vector<std::vector<int>> by_node(const std::vector<int>& allowed, const CoreSources& sources) {
  std::vector<std::vector<int>> nodes;
  for (const int node : list_of(line_of(std::filesystem::path(sources.nodes) / "online"))) {
    std::vector<int> own;
    const auto folder = std::filesystem::path(sources.nodes) / ("node" + std::to_string(node));
    for (const int processor : list_of(line_of(folder / "cpulist")))
      if (std::find(allowed.begin(), allowed.end(), processor) != allowed.end()) own.push_back(processor);
    if (!own.empty()) nodes.push_back(std::move(own));
  }
  return nodes;
}

// Cores' worth of time that a folder of version 2 ("200000 100000", "max 100000") or of version 1 allows.
std::optional<double> quota_of(const std::filesystem::path& folder) {
  const std::string both = line_of(folder / "cpu.max");
  const size_t space = std::min(both.find(' '), both.size());
  auto quota = number_of<double>(std::string_view(both).substr(0, space));
  auto period = number_of<double>(std::string_view(both).substr(std::min(space + 1, both.size())));
  if (both.empty()) {
    quota = number_of<double>(line_of(folder / "cpu.cfs_quota_us"));
    period = number_of<double>(line_of(folder / "cpu.cfs_period_us"));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

// The least of the process's cgroup and all around it. A container sees its own as the root, whatever it is called outside.
double cgroup_quota(const CoreSources& sources) {
  double least = kMostProcessors;
  std::ifstream groups(sources.own_cgroup);
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_1 = (',' + controllers + ',').find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !version_1) continue;
    const std::filesystem::path root =
        version_1 ? std::filesystem::path(sources.cgroups) / "cpu" : std::filesystem::path(sources.cgroups);
    std::filesystem::path own = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (; true; own = own.parent_path()) {
      least = std::min(least, quota_of(root / own).value_or(least));
      if (own.empty()) break;
    }
  }
  return least;
}

}  // namespace

ComputeCores compute_cores(const std::vector<int>& allowed, const CoreSources& sources) {
  ComputeCores chosen;
  std::vector<int> cores = one_for_each_core(allowed, sources);
  const std::vector<std::vector<int>> nodes = by_node(allowed, sources);
  if (nodes.size() > 1) {
    cores.clear();
    for (const std::vector<int>& node : nodes) {
      std::vector<int> of_node = one_for_each_core(node, sources);
      if (of_node.size() <= cores.size()) continue;
      cores = std::move(of_node);
      chosen.stay_on = node;
    }
  }
  const double most = std::min(static_cast<double>(cores.size()), std::floor(cgroup_quota(sources)));
  chosen.threads = std::max(1, static_cast<int>(most));
  return chosen;
}

ComputeCores compute_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < kMostProcessors; ++i)
      if (CPU_ISSET(static_cast<size_t>(i), &set)) allowed.push_back(i);
  return compute_cores(allowed);
}

void stay_on(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors)
    if (processor >= 0 && processor < kMostProcessors) CPU_SET(static_cast<size_t>(processor), &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace sluice
