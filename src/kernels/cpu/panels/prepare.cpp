// Weights into panels, once, at load: one task per few panels on all threads. Bytes read: the stored tensor; written: the
// panels, 1.00 to 1.04 times as many, of plain types up to 1.15.
#include <sys/mman.h>

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/panels/format.h"
#include "kernels/cpu/panels/pack.h"

namespace sluice::kernels::cpu {

namespace {

constexpr int64_t kRegionBytes = int64_t{256} << 20;  // pages that nobody writes to take no memory
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAlignment = 64;

int64_t rounded_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// Zeroed, in huge pages where the system has them; null where there is no memory.
std::shared_ptr<uint8_t> map_region(int64_t bytes) {
  const auto length = static_cast<size_t>(bytes + kHugePage);
  void* mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const auto aligned = static_cast<uintptr_t>(rounded_up(static_cast<int64_t>(address), kHugePage));
  // A system without huge pages refuses, and plain pages serve.
  static_cast<void>(::madvise(reinterpret_cast<void*>(aligned), static_cast<size_t>(bytes), MADV_HUGEPAGE));
  const std::shared_ptr<void> owner(mapped, [length](void* at) { ::munmap(at, length); });
  return {owner, reinterpret_cast<uint8_t*>(aligned)};
}

// Plain rows that would leave much of their last panel empty are read as they are stored.
bool fills_panels(const TensorView& part) {
  const int64_t padded = rounded_up(part.dim(0), kPanelRows);
  return 100 * padded <= 115 * part.dim(0);
}

}  // namespace

std::shared_ptr<uint8_t> PanelMemory::take(int64_t bytes) {
  bytes = rounded_up(bytes, kAlignment);
  if (used_ + bytes > size_) {
    size_ = rounded_up(std::max(bytes, kRegionBytes), kHugePage);
    used_ = 0;
    region_ = map_region(size_);
    if (region_ == nullptr) size_ = 0;
  }
  if (region_ == nullptr) return nullptr;
  std::shared_ptr<uint8_t> taken(region_, region_.get() + used_);
  used_ += bytes;
  return taken;
}

Weight CpuBackend::prepare(Weight weight) {
  // Tables are looked up row by row, where they are stored.
  if (weight.table) return weight;
  return prepare_runs(std::move(weight), [this](Weight run) { return prepare_parts(std::move(run)); });
}

Weight CpuBackend::prepare_parts(Weight weight) {
  if (!repack_) return weight;
  auto packed = std::make_shared<PackedWeight>();
  for (const TensorView& part : weight.parts) {
    const StoredRows stored{part.dtype, static_cast<const uint8_t*>(part.data), part.dim(0), weight.cols};
    const PanelLayout layout = panel_kernels_.layout(part.dtype);
    const bool has = has_panels(part.dtype, layout) && (layout != PanelLayout::Columns || fills_panels(part));
    const int64_t bytes = has ? panel_bytes(part.dtype, layout, weight.cols) : 0;
    const int64_t panels = (part.dim(0) + kPanelRows - 1) / kPanelRows;
    std::shared_ptr<uint8_t> memory = bytes == 0 ? nullptr : panels_.take(panels * bytes);
    if (bytes > 0 && memory == nullptr) return weight;  // all parts are read as they are stored, then
    packed->panels.push_back(memory.get());
    if (memory == nullptr) continue;
    pool_.for_ranges(panels, 4, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel)
        pack_panel(memory.get() + panel * bytes, stored, panel, layout);
    });
    packed->memory.push_back(std::move(memory));
  }
  weight.packed_whole = !weight.parts.empty() && packed->memory.size() == weight.parts.size();
  if (!packed->memory.empty()) weight.packed = std::move(packed);
  return weight;
}

// A copy in panels beside the rows that are looked up.
Weight CpuBackend::prepare_tied(Weight table) {
  table.table = false;
  return prepare(std::move(table));
}

}  // namespace sluice::kernels::cpu
