#include "formats/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/mapped_file.h"

namespace sluice::formats {

namespace {

// The whole pages of `bytes`. The mapping is of a file and read-only: what is dropped is read from it again. A refusal costs
// memory only.
void release_range(std::string_view bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const size_t before = (page - first % page) % page, behind = (first + bytes.size()) % page;
  if (before + behind >= bytes.size()) return;
  const std::string_view pages = bytes.substr(before, bytes.size() - before - behind);
  static_cast<void>(::madvise(const_cast<char*>(pages.data()), pages.size(), MADV_DONTNEED));
}

}  // namespace

void release_pages(const TensorStore& store, const TensorView& view) {
  const auto first = reinterpret_cast<uintptr_t>(view.data);
  const uintptr_t last = first + static_cast<uintptr_t>(view.bytes());
  for (const std::shared_ptr<const MappedFile>& file : store.files()) {
    const auto begin = reinterpret_cast<uintptr_t>(file->bytes().data());
    if (first < begin || last > begin + file->bytes().size()) continue;
    return release_range(file->bytes().substr(first - begin, last - first));
  }
}

void release_pages(const TensorStore& store) {
  for (const std::shared_ptr<const MappedFile>& file : store.files()) release_range(file->bytes());
}

}  // namespace sluice::formats
