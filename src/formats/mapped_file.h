// A regular file mapped read-only, and what happens when it changes under the mapping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct stat;

namespace sluice::formats {

// The mapping lives as long as the object. The bytes are stable only while nobody truncates the file: an
// access beyond its new end raises SIGBUS, which install_fault_handler() turns into a message.
class MappedFile {
 public:
  // Refuses folders, devices, pipes and sockets (without waiting on them), empty files, and git-lfs pointers
  // that stand in for the real file.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Whether the mapped file itself was written to: another size, or another time of modification and other bytes, of
  // which a sample is compared: its first and last mebibyte, and pieces spread evenly over the rest. One that was replaced
  // or removed lives on in the mapping. Of one thread at a time.
  bool changed() const;

 private:
  // The file's identity and state when it was mapped.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;
  };
  static Stamp stamp_of(const struct stat& status);
  MappedFile(std::string path, std::string_view bytes, const Stamp& stamp);

  std::string path_;
  mutable Stamp stamp_;  // of the last time that its bytes were found to be the same
  std::string_view bytes_;
  uint64_t sample_;  // hash of the bytes that are compared
  int slot_;         // in the table that the fault handler reads
};

// From here on a SIGBUS inside a mapped file prints "model file X changed on disk" to stderr and exits with
// status 74; any other SIGBUS goes where it went before. Call once, from main().
void install_fault_handler();

}  // namespace sluice::formats
