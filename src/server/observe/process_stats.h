// What the operating system says about this process.
#pragma once

#include <cstdint>

namespace sluice::server {

// Numbers that cannot be had are 0.
struct ProcessStats {
  double cpu_seconds = 0, resident_bytes = 0, virtual_bytes = 0, open_files = 0, most_files = 0, threads = 0;
  double start_time = 0;  // seconds since 1970
};
ProcessStats process_stats();

// Lets this process open as many files as the system allows; says how many.
int64_t raise_file_limit();

}  // namespace sluice::server
