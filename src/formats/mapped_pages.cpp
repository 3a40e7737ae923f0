#include "formats/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "formats/mapped_file.h"

namespace sluice::formats {

namespace {

// The whole pages of [first, last). The mapping is of a file and read-only: what is dropped is read from it again. A refusal
// costs memory only.
void release_range(uintptr_t first, uintptr_t last) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = (first + page - 1) / page * page, to = last / page * page;
  if (from < to) static_cast<void>(::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED));
}

}  // namespace

void release_pages(const TensorStore& store, const TensorView& view) {
  const auto first = reinterpret_cast<uintptr_t>(view.data);
  const uintptr_t last = first + static_cast<uintptr_t>(view.bytes());
  for (const std::shared_ptr<const MappedFile>& file : store.files()) {
    const auto begin = reinterpret_cast<uintptr_t>(file->bytes().data());
    if (first < begin || last > begin + file->bytes().size()) continue;
    return release_range(first, last);
  }
}

void release_pages(const TensorStore& store) {
  for (const std::shared_ptr<const MappedFile>& file : store.files()) {
    const auto begin = reinterpret_cast<uintptr_t>(file->bytes().data());
    release_range(begin, begin + file->bytes().size());
  }
}

}  // namespace sluice::formats
